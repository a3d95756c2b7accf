//! The configurations that are compared.

use cachette::Config;
use cachette::config::ConfigError;
use clap::ValueEnum;

/// Which configurations `--compare` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Compare {
    /// Direct segments and elastic ones
    Segments,
    /// The setting `compact` of elastic segments too
    Settings,
}

/// The configurations of `--compare`: the lowest option that includes it, its name, and its text.
const COMPARED: [(Compare, &str, &str); 3] = [
    (Compare::Segments, "direct", "expandable_segments:False"),
    (Compare::Segments, "elastic", ""),
    (Compare::Settings, "compact", "elastic_setting:compact"),
];

/// A configuration for replays, and its name if it has one.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// Its name in a comparison; `None` for one from the user.
    pub(super) name: Option<&'static str>,
    pub(super) config: Config,
}

impl Named {
    pub(super) const fn written(config: Config) -> Self {
        Self { name: None, config }
    }

    /// Returns the configurations that `compare` selects.
    pub(super) fn compared(compare: Compare) -> Result<Vec<Self>, ConfigError> {
        COMPARED
            .iter()
            .filter(|(least, ..)| *least <= compare)
            .map(|(_, name, text)| Ok(Self { name: Some(name), config: text.parse()? }))
            .collect()
    }

    /// Returns direct segments and the default, which are compared without options.
    pub(super) fn beside_direct() -> Result<Vec<Self>, ConfigError> {
        let direct = Config::builder().expandable_segments(false).build()?;
        let named = |name, config| Self { name: Some(name), config };
        Ok(vec![named("direct", direct), named("default", Config::default())])
    }

    /// Returns the settings that differ from the default, or a text if there are none.
    pub(super) fn text(&self) -> String {
        let text = self.config.to_string();
        if text.is_empty() { "default".to_owned() } else { text }
    }

    /// Returns whether it contains a memory limit.
    pub(super) fn is_limited(&self) -> bool {
        self.config.limit_bytes(u64::MAX).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_knows_every_configuration_by_its_text() {
        let compared = Named::compared(Compare::Settings).unwrap();
        let found: Vec<_> = compared.iter().map(Named::text).collect();
        let texts = COMPARED.map(|(_, _, text)| if text.is_empty() { "default" } else { text });
        assert_eq!(found, texts);
    }
}

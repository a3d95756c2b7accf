//! How elastic segments weigh memory against calls to the driver.

use std::fmt;

use super::format::Format;

/// How elastic segments weigh memory against calls to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ElasticSetting {
    /// Wastes little memory; a program that repeats itself soon needs no calls.
    #[default]
    Default,
    /// Uses as little memory as possible, at any cost in calls.
    Compact,
    /// Makes few calls, even at the start.
    Quick,
}

/// The name of a setting.
pub(super) const ELASTIC_SETTING: Format<ElasticSetting> = Format {
    read: |word| {
        let all = [ElasticSetting::Default, ElasticSetting::Compact, ElasticSetting::Quick];
        all.into_iter().find(|setting| setting.name() == word)
    },
    write: |setting| setting.to_string(),
    allows: |_, _| true,
    rule: |_| "default, compact or quick".into(),
};

impl ElasticSetting {
    /// The word that is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Compact => "compact",
            Self::Quick => "quick",
        }
    }
}

impl fmt::Display for ElasticSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

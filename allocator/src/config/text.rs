//! Reads a configuration from text and writes it.

use std::fmt;
use std::str::FromStr;

use super::parse::{ConfigEntry, parse};
use super::{Config, ConfigError, KEYS, Roundup};

impl Config {
    /// Sets what `text` says.
    ///
    /// As in PyTorch, `max_split_size_mb`, `max_non_split_rounding_mb`, `garbage_collection_threshold` and
    /// `roundup_power2_divisions` return to their defaults unless `text` names them. All other keys keep their values.
    /// After an error nothing has changed.
    pub fn update(&mut self, text: &str) -> Result<(), ConfigError> {
        self.try_update(text, None).map_err(|error| error.in_text(text))
    }

    /// Sets what `text` says, and skips unknown keys.
    ///
    /// Use it for text that PyTorch has accepted, so that a key of a newer PyTorch does not stop a program. The skipped
    /// keys are returned, each as the error of [`update`](Self::update). Other mistakes are still errors.
    pub fn update_known(&mut self, text: &str) -> Result<Vec<ConfigError>, ConfigError> {
        let mut skipped = Vec::new();
        self.try_update(text, Some(&mut skipped)).map_err(|error| error.in_text(text))?;
        Ok(skipped.into_iter().map(|error| error.in_text(text)).collect())
    }

    fn try_update(&mut self, text: &str, skipped: Option<&mut Vec<ConfigError>>) -> Result<(), ConfigError> {
        let mut entries = parse(text, skipped)?;
        // The size of large segments bounds other values, wherever it stands in the text.
        entries.sort_by_key(|entry| entry.key.name() != "large_segment_size_mb");
        let mut updated = Self {
            max_split_bytes: Self::DEFAULT.max_split_bytes,
            max_non_split_rounding: Self::DEFAULT.max_non_split_rounding,
            gc_threshold: Self::DEFAULT.gc_threshold,
            roundup: Self::DEFAULT.roundup,
            ..self.clone()
        };
        entries.iter().try_for_each(|entry| updated.apply(entry))?;
        *self = updated.normalise();
        Ok(())
    }

    fn apply(&mut self, entry: &ConfigEntry) -> Result<(), ConfigError> {
        let ConfigEntry { key, value, pairs, .. } = entry;
        // Every other key refuses the text of a list.
        if let (Roundup::KEY, Some(pairs)) = (key.name(), pairs) {
            self.roundup = Roundup::from_list(pairs)?;
        } else if (key.set)(self, &value.text).is_none() || !(key.is_allowed)(self) {
            return Err(key.refuse(&value.text, self).at(&value.span));
        }
        Ok(())
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut config = Self::default();
        config.update(text)?;
        Ok(config)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for key in KEYS {
            if let Some(value) = (key.text)(self) {
                write!(f, "{comma}{}:{value}", key.name())?;
                comma = ",";
            }
        }
        Ok(())
    }
}

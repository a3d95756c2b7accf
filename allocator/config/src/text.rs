//! Reads a configuration from text or from the environment, and writes it.

use std::fmt;
use std::str::FromStr;

use super::parse::{ConfigEntry, Skipped, parse};
use super::{Config, ConfigError, KEYS, Roundup};

/// Cachette's variable; it is not read if it is empty.
const CACHETTE: &str = "CACHETTE_ALLOC_CONF";

/// PyTorch's variables, in its order; the first that is set is read, even if it is empty.
const PYTORCH: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Any of these variables, set to `1`, switches caching off.
const NO_CACHING: [&str; 3] =
    ["CACHETTE_NO_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"];

impl Config {
    /// Reads the configuration from the environment.
    ///
    /// The text is the value of `CACHETTE_ALLOC_CONF`. If that is unset or empty, the first of
    /// `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF` and `PYTORCH_ALLOC_CONF` that is set is read, as in PyTorch.
    /// Variables are not merged: the others are ignored.
    ///
    /// `CACHETTE_NO_MEMORY_CACHING`, `PYTORCH_NO_CUDA_MEMORY_CACHING` or `PYTORCH_NO_HIP_MEMORY_CACHING`, set to `1`,
    /// switches caching off, regardless of the text.
    pub fn from_env() -> Result<Self, ConfigError> {
        let (config, skipped) = Self::from_env_known()?;
        skipped.into_iter().next().map_or(Ok(config), Err)
    }

    /// Reads the configuration from the environment. It skips unknown keys in PyTorch's variables, and removed ones.
    ///
    /// The skipped keys are returned; see [`update_known`](Self::update_known).
    pub fn from_env_known() -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let mut config = Self::default();
        let skipped = config.update_from_env_known()?;
        Ok((config, skipped))
    }

    /// Applies the settings in the environment, as [`from_env_known`](Self::from_env_known) does to the default.
    pub fn update_from_env_known(&mut self) -> Result<Vec<ConfigError>, ConfigError> {
        self.read(variable)
    }

    pub(super) fn read(&mut self, lookup: impl Fn(&str) -> Option<String>) -> Result<Vec<ConfigError>, ConfigError> {
        let mut skipped = Vec::new();
        if let Some(text) = lookup(CACHETTE).filter(|text| !text.trim().is_empty()) {
            let removed = self.update_but(&text, Skipped::removed()).map_err(|error| error.in_variable(CACHETTE))?;
            skipped.extend(removed.into_iter().map(|error| error.in_variable(CACHETTE)));
        } else if let Some((name, text)) = PYTORCH.into_iter().find_map(|name| Some((name, lookup(name)?))) {
            let unknown = self.update_known(&text).map_err(|error| error.in_variable(name))?;
            skipped.extend(unknown.into_iter().map(|error| error.in_variable(name)));
        }
        if NO_CACHING.into_iter().any(|name| lookup(name).is_some_and(|value| value == "1")) {
            self.caching = false;
        }
        Ok(skipped)
    }

    /// Applies the settings in `text`.
    ///
    /// As in PyTorch, `max_split_size_mb`, `max_non_split_rounding_mb`, `garbage_collection_threshold` and
    /// `roundup_power2_divisions` return to their defaults unless `text` names them. All other keys keep their values.
    /// After an error nothing has changed.
    pub fn update(&mut self, text: &str) -> Result<(), ConfigError> {
        self.update_but(text, Skipped::none()).map(drop)
    }

    /// Applies the settings in `text`, and skips unknown keys.
    ///
    /// Use it for text that PyTorch has accepted, so that a key of a newer PyTorch does not stop a program. The skipped
    /// keys are returned, each as the error of [`update`](Self::update). Other mistakes are still errors.
    pub fn update_known(&mut self, text: &str) -> Result<Vec<ConfigError>, ConfigError> {
        self.update_but(text, Skipped::all())
    }

    fn update_but(&mut self, text: &str, mut skipped: Skipped) -> Result<Vec<ConfigError>, ConfigError> {
        self.try_update(text, &mut skipped).map_err(|error| error.in_text(text))?;
        Ok(skipped.errors.into_iter().map(|error| error.in_text(text)).collect())
    }

    fn try_update(&mut self, text: &str, skipped: &mut Skipped) -> Result<(), ConfigError> {
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

fn variable(name: &str) -> Option<String> {
    // Bytes that are not UTF-8 become a character that no key or value contains, and so an error.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

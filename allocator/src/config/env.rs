//! Reads the configuration from the environment.

use super::{Config, ConfigError};

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
    /// switches caching off, whatever the text says.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(variable)
    }

    /// Reads the configuration from the environment, and skips unknown keys in PyTorch's variables.
    ///
    /// The skipped keys are returned; see [`update_known`](Self::update_known).
    pub fn from_env_known() -> Result<(Self, Vec<ConfigError>), ConfigError> {
        Self::read(variable)
    }

    /// Reads the configuration from the variables that `lookup` returns; see [`from_env`](Self::from_env).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let (config, skipped) = Self::read(lookup)?;
        skipped.into_iter().next().map_or(Ok(config), Err)
    }

    pub(super) fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let (mut config, mut skipped) = (Self::default(), Vec::new());
        if let Some(text) = lookup(CACHETTE).filter(|text| !text.trim().is_empty()) {
            config.update(&text).map_err(|error| error.in_variable(CACHETTE))?;
        } else if let Some((name, text)) = PYTORCH.into_iter().find_map(|name| Some((name, lookup(name)?))) {
            let unknown = config.update_known(&text).map_err(|error| error.in_variable(name))?;
            skipped.extend(unknown.into_iter().map(|error| error.in_variable(name)));
        }
        if NO_CACHING.into_iter().any(|name| lookup(name).is_some_and(|value| value == "1")) {
            config.caching = false;
        }
        Ok((config, skipped))
    }
}

fn variable(name: &str) -> Option<String> {
    // Bytes that are not UTF-8 become a character that no key or value contains, and so an error.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

//! Changing a configuration by a text.

use super::error::Fault;
use super::{Config, ConfigError, text};

impl Config {
    /// Sets what `text` says.
    ///
    /// What limits splitting, the threshold of garbage collection and the divisions of rounding return to
    /// their defaults unless `text` names them; everything else keeps its value. After an error nothing
    /// has changed.
    pub fn update(&mut self, text: &str) -> Result<(), ConfigError> {
        self.update_with(text, Err)
    }

    /// Sets what `text` says, and leaves out the keys that there are not.
    ///
    /// It is meant for a text that PyTorch has accepted: a key of a newer PyTorch does not stop a program. What is left
    /// out is returned, each as the error that [`update`](Self::update) gives. Other mistakes are errors here, too.
    pub fn update_known(&mut self, text: &str) -> Result<Vec<ConfigError>, ConfigError> {
        let mut left_out = Vec::new();
        self.update_with(text, |fault| {
            left_out.push(ConfigError::in_text(fault, text));
            Ok(())
        })?;
        Ok(left_out)
    }

    fn update_with(&mut self, text: &str, unknown: impl FnMut(Fault) -> Result<(), Fault>) -> Result<(), ConfigError> {
        let default = Self::default();
        let mut updated = Self {
            max_split_bytes: default.max_split_bytes,
            max_non_split_rounding_bytes: default.max_non_split_rounding_bytes,
            gc_threshold: default.gc_threshold,
            roundup: default.roundup,
            ..self.clone()
        };
        text::apply(&mut updated, text, unknown)?;
        updated.settle();
        *self = updated;
        Ok(())
    }

    /// Gives values that mean the same the same form.
    pub(super) fn settle(&mut self) {
        let large = self.large_segment_bytes;
        self.max_non_split_rounding_bytes = self.max_non_split_rounding_bytes.filter(|bytes| *bytes != large);
        self.memory_fraction = self.memory_fraction.filter(|fraction| *fraction < 1.0);
    }
}

//! Finds keys by their spelling, and reports mistakes in keys and values.

use super::{Config, ConfigError, ConfigKey, KEYS};

/// PyTorch's keys that Cachette does not support: the key, the reason and the alternative.
const UNSUPPORTED: [(&str, &str); 1] = [(
    "expandable_segments_reserve_by_class",
    "Cachette has no stream classes; use expandable_segments_reserve, which applies to all streams",
)];

impl ConfigKey {
    /// The spelling that is written.
    pub(super) const fn name(&self) -> &'static str {
        self.spellings[0]
    }

    /// The key with the spelling `word`.
    pub(super) fn find(word: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.spellings.contains(&word))
    }

    /// The error for a key that does not exist.
    pub(super) fn unknown(word: &str) -> ConfigError {
        if let Some((_, why)) = UNSUPPORTED.iter().find(|(key, _)| *key == word) {
            return ConfigError::new(format!("{word} is not supported: {why}"));
        }
        let suggestion = Self::closest(word).map_or(String::new(), |name| format!(" (did you mean '{name}'?)"));
        let all: Vec<_> = KEYS.iter().map(Self::name).collect();
        ConfigError::new(format!("there is no key '{word}'{suggestion}; the keys are {}", all.join(", ")))
    }

    /// The spelling most similar to `word`, if at most a third of its letters differ.
    pub(super) fn closest(word: &str) -> Option<&'static str> {
        let letters = word.chars().count();
        KEYS.iter()
            .flat_map(|key| key.spellings)
            // The distance is at least the difference of the lengths, so long words are never compared.
            .filter(|name| letters.abs_diff(name.len()) <= name.len() / 3)
            .map(|name| (strsim::levenshtein(word, name), *name))
            .filter(|(distance, name)| *distance <= name.len() / 3)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name)
    }

    /// The error for a value that this key does not allow.
    pub(super) fn refuse(&self, value: &str, config: &Config) -> ConfigError {
        ConfigError::not_allowed(self.name(), value, &(self.rule)(config))
    }
}

//! How elastic segments weigh memory against calls to the driver.

use std::fmt;

/// How elastic segments weigh memory against calls to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ElasticSetting {
    /// Little memory is wasted, and a program that repeats itself soon needs no call.
    #[default]
    Default,
    /// As little memory as can be, whatever it costs.
    Compact,
    /// Few calls, even at the start.
    Quick,
}

impl ElasticSetting {
    const ALL: [Self; 3] = [Self::Default, Self::Compact, Self::Quick];

    /// The word that is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Compact => "compact",
            Self::Quick => "quick",
        }
    }

    /// The setting called `word`.
    pub(super) fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == word)
    }
}

impl fmt::Display for ElasticSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

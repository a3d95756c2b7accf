//! Optional groups of calls, and the reasons why one is absent.

use std::fmt;

use crate::enum_with_text::enum_with_text;
use crate::{Error, ErrorKind, LoadError, Version};

enum_with_text! {
    /// An optional group of calls.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Feature {
        /// [`VirtualMemory`](crate::VirtualMemory).
        VirtualMemory = "virtual memory",
        /// [`StreamOrdered`](crate::StreamOrdered).
        StreamOrdered = "stream-ordered memory",
        /// [`HostMemory`](crate::HostMemory).
        HostMemory = "pinned host memory",
        /// [`Ipc`](crate::Ipc).
        Ipc = "inter-process tokens",
        /// [`Capture`](crate::Capture).
        Capture = "graph capture",
        /// [`PeerAccess`](crate::PeerAccess).
        PeerAccess = "peer access",
        /// [`Transfer`](crate::Transfer).
        Transfer = "transfer",
        /// [`HostCalls`](crate::HostCalls).
        HostCalls = "host calls",
    }
    /// The name that reports and options use.
    name
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a [`Feature`] is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The backend does not implement the group.
    NotImplemented,
    /// The driver library does not export this symbol.
    NoSymbol(&'static str),
    /// The driver is older than the feature.
    DriverTooOld {
        /// First version that has it.
        needs: Version,
        /// Version found.
        found: Version,
    },
    /// The device lacks a property; the text is its name.
    DeviceLacks(&'static str),
    /// It failed its self-test; the text is the reason.
    SelfTestFailed(&'static str),
    /// It is unsafe here; the text has the reason, and the variable that overrides the guard.
    Guarded(&'static str),
    /// It was switched off; the text is the cause.
    SwitchedOff(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotImplemented => f.write_str("this backend does not implement it"),
            Self::NoSymbol(symbol) => write!(f, "the driver library has no symbol {symbol}"),
            Self::DriverTooOld { needs, found } => {
                write!(f, "needs driver {needs}, found {found}")
            }
            Self::DeviceLacks(property) => write!(f, "the device lacks {property}"),
            Self::SelfTestFailed(how) => write!(f, "it failed its self-test: {how}"),
            Self::Guarded(why) => write!(f, "held back: {why}"),
            Self::SwitchedOff(by) => write!(f, "switched off by {by}"),
        }
    }
}

impl From<LoadError> for Reason {
    /// Returns why a group is absent if its functions could not be resolved: the first missing symbol.
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::SymbolsMissing { symbols, .. } => {
                symbols.first().map_or(Self::NotImplemented, |symbol| Self::NoSymbol(symbol))
            }
            _ => Self::NotImplemented,
        }
    }
}

/// A feature, and the reason it cannot be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {feature}: {reason}")]
pub struct Missing {
    /// The absent feature.
    pub feature: Feature,
    /// Why it is absent.
    pub reason: Reason,
}

impl Missing {
    /// Joins a feature with the reason it is absent.
    #[must_use]
    pub const fn new(feature: Feature, reason: Reason) -> Self {
        Self { feature, reason }
    }

    /// The feature is not implemented by the backend.
    #[must_use]
    pub const fn unimplemented(feature: Feature) -> Self {
        Self::new(feature, Reason::NotImplemented)
    }
}

impl From<Missing> for Error {
    /// Keeps the feature's name as the call; the reason is lost.
    fn from(missing: Missing) -> Self {
        Self::new(ErrorKind::Unsupported, missing.feature.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_feature_says_which_and_why() {
        let missing = Missing::new(
            Feature::VirtualMemory,
            Reason::DriverTooOld { needs: Version::new(11, 3), found: Version::new(11, 1) },
        );
        assert_eq!(missing.to_string(), "no virtual memory: needs driver 11.3, found 11.1");
        assert_eq!(Error::from(missing).kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_group_without_a_symbol_is_missing_for_that_symbol() {
        let lacking =
            LoadError::SymbolsMissing { library: "libcuda.so.1".into(), symbols: vec!["cuMemMap", "cuMemUnmap"] };
        assert_eq!(Reason::from(lacking), Reason::NoSymbol("cuMemMap"));
    }

    #[test]
    fn every_feature_is_listed_once() {
        for (i, feature) in Feature::ALL.iter().enumerate() {
            assert_eq!(*feature as usize, i);
        }
    }
}

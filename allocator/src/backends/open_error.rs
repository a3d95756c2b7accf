//! Why a device could not be opened.

use std::fmt;

use cachette_hal::{Error, LoadError, Ordinal};

use super::Backends;

/// Why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No backend has this name.
    #[error("there is no backend named '{name}'; choose one of {KnownNames}")]
    UnknownBackend {
        /// The name asked for.
        name: String,
    },
    /// What follows the colon is not a device number.
    #[error("'{text}' is not a device number; write a whole number from 0 up, as in '{backend}:0'")]
    BadOrdinal {
        /// The backend asked for.
        backend: &'static str,
        /// The text after the colon.
        text: String,
    },
    /// The backend has fewer devices.
    #[error("there is no device {backend}:{ordinal}; {}", Count(*count))]
    NoSuchDevice {
        /// The backend asked.
        backend: &'static str,
        /// The device asked for.
        ordinal: Ordinal,
        /// How many devices the backend has.
        count: u32,
    },
    /// The backend is not part of this build.
    #[error("the backend '{backend}' is not compiled in; compile with the feature `{backend}`")]
    NotCompiled {
        /// The backend asked for.
        backend: &'static str,
    },
    /// The backend's driver cannot be used here.
    #[error("the backend '{backend}' cannot be used here: {error}")]
    Load {
        /// The backend asked for.
        backend: &'static str,
        /// Why not.
        error: LoadError,
    },
    /// The driver was loaded, and then failed.
    #[error("the backend '{backend}' failed: {error}")]
    Driver {
        /// The backend asked.
        backend: &'static str,
        /// What its driver answered.
        error: Error,
    },
    /// No host device can be made like this.
    #[cfg(feature = "host")]
    #[error("no such host device can be made: {0}")]
    HostConfig(#[from] cachette_hal_host::ConfigError),
    /// No backend has a device.
    #[error("no backend has a device: {}", Reasons(unusable))]
    NoneUsable {
        /// Every backend, in the order tried.
        unusable: Vec<Unusable>,
    },
}

/// One backend that gave no device, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The backend's name.
    pub name: &'static str,
    /// Why it gave none.
    pub why: OpenError,
}

/// Writes every backend's name as `a, b, c`.
struct KnownNames;

impl fmt::Display for KnownNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in Backends::names().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

/// Writes how many devices there are, and so which ordinals exist.
struct Count(u32);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("it shows no device"),
            1 => f.write_str("it has 1 device, number 0"),
            count => write!(f, "it has {count} devices, numbers 0 to {}", count - 1),
        }
    }
}

/// Writes the reasons one after the other.
struct Reasons<'a>(&'a [Unusable]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, unusable) in self.0.iter().enumerate() {
            let gap = if i == 0 { "" } else { "; " };
            write!(f, "{gap}{}", unusable.why)?;
        }
        Ok(())
    }
}

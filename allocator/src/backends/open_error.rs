//! Why a device could not be opened.

use cachette_hal::{Error, LoadError, Ordinal};

use super::Backends;

/// Why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No backend has this name.
    #[error("there is no backend named '{name}'; choose one of {}", known_names())]
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
    #[error("there is no device {backend}:{ordinal}; {}", count_text(*count))]
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
    #[error("no backend has a device: {}", reasons(unusable))]
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

fn known_names() -> String {
    Backends::names().collect::<Vec<_>>().join(", ")
}

/// How many devices there are, and so which ordinals exist.
fn count_text(count: u32) -> String {
    match count {
        0 => "it shows no device".to_owned(),
        1 => "it has 1 device, number 0".to_owned(),
        _ => format!("it has {count} devices, numbers 0 to {}", count - 1),
    }
}

fn reasons(unusable: &[Unusable]) -> String {
    unusable.iter().map(|unusable| unusable.why.to_string()).collect::<Vec<_>>().join("; ")
}

//! Every backend of this build, found by name.

#[cfg(feature = "host")]
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use cachette_hal::{AnyDevice, Backend, Error, LoadError, Ordinal};
#[cfg(feature = "host")]
use cachette_hal_host::HostBackend;
#[cfg(feature = "host")]
pub use cachette_hal_host::HostConfig;
use cfg_if::cfg_if;

#[cfg(feature = "host")]
use crate::config::{parse_size, size_meant};

/// Loads one backend, or returns why it is not available.
type Load = fn() -> Result<Arc<dyn Backend>, OpenError>;

/// Every known backend, in order of preference. Loading one that is not compiled in returns an error.
const KNOWN: [(&str, Load); 3] = [("cuda", cuda), ("hip", hip), ("host", host)];

/// The environment variable with the memory of the host device, such as `8GiB`.
#[cfg(feature = "host")]
const HOST_CAPACITY: &str = "CACHETTE_HOST_CAPACITY";

/// The environment variable with a file by which processes share the memory of the host device.
#[cfg(feature = "host")]
const HOST_SHARED: &str = "CACHETTE_HOST_SHARED";

/// A backend, and whether it is usable on this machine.
#[derive(Debug)]
pub struct Found {
    /// The name by which users choose it.
    pub name: &'static str,
    /// The backend, or the reason why it is missing.
    pub backend: Result<Arc<dyn Backend>, OpenError>,
}

/// The backends of this build.
///
/// Features select the backends at compile time; the installed drivers decide at run time which ones work.
#[derive(Clone, Copy, Debug)]
pub struct Backends;

impl Backends {
    /// Names of every backend, in order of preference, whether compiled in or not.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// Tries every backend, in order of preference.
    #[must_use]
    pub fn available() -> Vec<Found> {
        try_all().collect()
    }

    /// Loads the backend called `name`.
    pub fn load(name: &str) -> Result<Arc<dyn Backend>, OpenError> {
        find(name)?.1()
    }

    /// Opens the device that `target` names: `cuda:0`, `host:1`, or `host` for the first.
    ///
    /// `host` has as much memory as the machine, or as the environment variable `CACHETTE_HOST_CAPACITY` says. Processes
    /// with the same file in `CACHETTE_HOST_SHARED` share that memory, as they share a GPU.
    pub fn open(target: &str) -> Result<AnyDevice, OpenError> {
        let (name, text) = target.split_once(':').unwrap_or((target, "0"));
        let (backend, load) = find(name)?;
        let ordinal = text.parse().map_err(|_| OpenError::BadOrdinal { backend, text: text.to_owned() })?;
        Self::open_on(&*load()?, ordinal)
    }

    /// Opens the first device of the most preferred backend that has one.
    ///
    /// Skips backends that cannot be used. The error lists every reason, as [`available`](Self::available) does.
    pub fn open_first() -> Result<AnyDevice, OpenError> {
        first_of(try_all())
    }

    /// Opens a device of a backend. For an ordinal beyond the last, the error contains the number of devices.
    pub fn open_on(backend: &dyn Backend, ordinal: Ordinal) -> Result<AnyDevice, OpenError> {
        let name = backend.info().name;
        let failed = |error| OpenError::Driver { backend: name, error };
        let count = backend.device_count().map_err(failed)?;
        if ordinal.0 >= count {
            return Err(OpenError::NoSuchDevice { backend: name, ordinal, count });
        }
        backend.open(ordinal).map_err(failed)
    }

    /// Creates a host backend with a configuration.
    #[cfg(feature = "host")]
    pub fn host(config: HostConfig) -> Result<Arc<dyn Backend>, OpenError> {
        Ok(Arc::new(HostBackend::new(config)?))
    }
}

fn try_all() -> impl Iterator<Item = Found> {
    KNOWN.iter().map(|&(name, load)| Found { name, backend: load() })
}

fn find(name: &str) -> Result<(&'static str, Load), OpenError> {
    KNOWN
        .iter()
        .copied()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| OpenError::UnknownBackend { name: name.to_owned() })
}

/// Opens the first device of the first backend in `found` that has one. Later backends are not loaded.
fn first_of(found: impl IntoIterator<Item = Found>) -> Result<AnyDevice, OpenError> {
    let mut unusable = Vec::new();
    for Found { backend, .. } in found {
        match backend.and_then(|backend| Backends::open_on(&*backend, Ordinal(0))) {
            Ok(device) => return Ok(device),
            Err(why) => unusable.push(why),
        }
    }
    Err(OpenError::NoneUsable { unusable })
}

/// Defines the function that loads the backend of a vendor, if it is compiled in.
macro_rules! vendor {
    ($name:ident, $feature:tt, $backend:path) => {
        fn $name() -> Result<Arc<dyn Backend>, OpenError> {
            cfg_if! {
                if #[cfg(feature = $feature)] {
                    match <$backend>::load() {
                        Ok(backend) => Ok(Arc::new(backend)),
                        Err(error) => Err(OpenError::Load { backend: $feature, error }),
                    }
                } else {
                    Err(OpenError::NotCompiled { backend: $feature })
                }
            }
        }
    };
}

vendor!(cuda, "cuda", cachette_hal_cuda::CudaBackend);
vendor!(hip, "hip", cachette_hal_hip::HipBackend);

fn host() -> Result<Arc<dyn Backend>, OpenError> {
    cfg_if! {
        if #[cfg(feature = "host")] {
            let config = host_config(std::env::var_os(HOST_CAPACITY))?;
            let file = std::env::var_os(HOST_SHARED).filter(|file| !file.is_empty());
            Backends::host(match file {
                Some(file) => config.shared(file),
                None => config,
            })
        } else {
            Err(OpenError::NotCompiled { backend: "host" })
        }
    }
}

/// The memory of the host device; the machine's without it.
#[cfg(feature = "host")]
fn host_config(capacity: Option<OsString>) -> Result<HostConfig, OpenError> {
    let Some(capacity) = capacity else { return Ok(HostConfig::of_machine()) };
    let text = capacity.to_string_lossy();
    let bytes = parse_size(&text).filter(|bytes| *bytes > 0 && size_meant(&text).is_none());
    let bytes = bytes.ok_or_else(|| OpenError::HostCapacity { text: text.into_owned() })?;
    Ok(HostConfig::of_machine().capacity(bytes))
}

/// Why a device could not be opened.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No backend has this name.
    #[error("there is no backend named '{name}'; choose one of {}", Backends::names().collect::<Vec<_>>().join(", "))]
    UnknownBackend {
        /// The requested name.
        name: String,
    },
    /// The text after the colon is not a device number.
    #[error("'{text}' is not a device number; write a whole number from 0 up, as in '{backend}:0'")]
    BadOrdinal {
        /// The requested backend.
        backend: &'static str,
        /// The text after the colon.
        text: String,
    },
    /// The backend has fewer devices.
    #[error("there is no device {backend}:{ordinal}; {}", count_text(*count))]
    NoSuchDevice {
        /// The requested backend.
        backend: &'static str,
        /// The requested device.
        ordinal: Ordinal,
        /// The number of devices of the backend.
        count: u32,
    },
    /// The backend is not part of this build.
    #[error("the backend '{backend}' is not compiled in; compile with the feature `{backend}`")]
    NotCompiled {
        /// The requested backend.
        backend: &'static str,
    },
    /// The backend's driver cannot be loaded.
    #[error("the backend '{backend}' cannot be used here: {error}")]
    Load {
        /// The requested backend.
        backend: &'static str,
        /// The reason.
        error: LoadError,
    },
    /// The driver was loaded, but a call failed.
    #[error("the backend '{backend}' failed: {error}")]
    Driver {
        /// The requested backend.
        backend: &'static str,
        /// The driver's error.
        error: Error,
    },
    /// The environment asks for a capacity of the host device that is not a size.
    #[cfg(feature = "host")]
    #[error("{HOST_CAPACITY} is '{text}', which is not a size with a unit; write one such as 8GiB")]
    HostCapacity {
        /// The value of the variable.
        text: String,
    },
    /// The configuration of the host device is invalid.
    #[cfg(feature = "host")]
    #[error("no such host device can be made: {0}")]
    HostConfig(#[from] cachette_hal_host::ConfigError),
    /// No backend has a device.
    #[error("no backend has a device: {}", unusable.iter().map(Self::to_string).collect::<Vec<_>>().join("; "))]
    NoneUsable {
        /// The reason of every backend, in the order of the attempts.
        unusable: Vec<OpenError>,
    },
}

/// The text, since a `main` that returns the error prints it by `Debug`.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Describes the number of devices, and so the valid ordinals.
fn count_text(count: u32) -> String {
    match count {
        0 => "it shows no device".to_owned(),
        1 => "it has 1 device, number 0".to_owned(),
        _ => format!("it has {count} devices, numbers 0 to {}", count - 1),
    }
}

#[cfg(test)]
mod tests;

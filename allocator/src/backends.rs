//! Every backend of this build, found by name.

mod open_error;

use std::sync::Arc;

use cachette_hal::{AnyDevice, Backend, Ordinal};
#[cfg(feature = "host")]
use cachette_hal_host::{HostBackend, HostConfig};
use cfg_if::cfg_if;

pub use open_error::{OpenError, Unusable};

/// Loads one backend, or says why it cannot be had.
type Load = fn() -> Result<Arc<dyn Backend>, OpenError>;

/// Every backend there is, in order of preference; one that is not compiled in says so when loaded.
const KNOWN: [(&str, Load); 3] = [("cuda", cuda), ("hip", hip), ("host", host)];

/// One backend, and whether it can be used here.
#[derive(Debug)]
pub struct Found {
    /// The name by which users choose it.
    pub name: &'static str,
    /// The backend, or why there is none.
    pub backend: Result<Arc<dyn Backend>, OpenError>,
}

/// The backends of this build.
///
/// Which of them exist is decided by features when compiling, which of them answer when running.
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
    pub fn open(target: &str) -> Result<AnyDevice, OpenError> {
        let (name, text) = target.split_once(':').unwrap_or((target, "0"));
        let (backend, load) = find(name)?;
        let ordinal = text.parse().map_err(|_| OpenError::BadOrdinal { backend, text: text.to_owned() })?;
        Self::open_on(&*load()?, ordinal)
    }

    /// Opens the first device of the most preferred backend that has one.
    ///
    /// A backend that cannot be used is passed over; [`available`](Self::available) tells why. The
    /// error lists every reason.
    pub fn open_first() -> Result<AnyDevice, OpenError> {
        first_of(try_all())
    }

    /// Opens a device of a backend; an ordinal beyond the last is answered with how many there are.
    pub fn open_on(backend: &dyn Backend, ordinal: Ordinal) -> Result<AnyDevice, OpenError> {
        let name = backend.info().name;
        let failed = |error| OpenError::Driver { backend: name, error };
        let count = backend.device_count().map_err(failed)?;
        if ordinal.0 >= count {
            return Err(OpenError::NoSuchDevice { backend: name, ordinal, count });
        }
        backend.open(ordinal).map_err(failed)
    }

    /// Makes a host backend other than the default one.
    #[cfg(feature = "host")]
    pub fn host(config: HostConfig) -> Result<Arc<dyn Backend>, OpenError> {
        Ok(Arc::new(HostBackend::new(config)?))
    }
}

/// Loads one backend after the other, each when its turn comes.
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

/// Opens the first device of the first backend in `found` that has one; those after it stay unloaded.
fn first_of(found: impl IntoIterator<Item = Found>) -> Result<AnyDevice, OpenError> {
    let mut unusable = Vec::new();
    for Found { name, backend } in found {
        match backend.and_then(|backend| Backends::open_on(&*backend, Ordinal(0))) {
            Ok(device) => return Ok(device),
            Err(why) => unusable.push(Unusable { name, why }),
        }
    }
    Err(OpenError::NoneUsable { unusable })
}

fn cuda() -> Result<Arc<dyn Backend>, OpenError> {
    cfg_if! {
        if #[cfg(feature = "cuda")] {
            cachette_hal_cuda::CudaBackend::load()
                .map(|backend| Arc::new(backend) as Arc<dyn Backend>)
                .map_err(|error| OpenError::Load { backend: "cuda", error })
        } else {
            Err(OpenError::NotCompiled { backend: "cuda" })
        }
    }
}

fn hip() -> Result<Arc<dyn Backend>, OpenError> {
    cfg_if! {
        if #[cfg(feature = "hip")] {
            cachette_hal_hip::HipBackend::load()
                .map(|backend| Arc::new(backend) as Arc<dyn Backend>)
                .map_err(|error| OpenError::Load { backend: "hip", error })
        } else {
            Err(OpenError::NotCompiled { backend: "hip" })
        }
    }
}

fn host() -> Result<Arc<dyn Backend>, OpenError> {
    cfg_if! {
        if #[cfg(feature = "host")] {
            Backends::host(HostConfig::default())
        } else {
            Err(OpenError::NotCompiled { backend: "host" })
        }
    }
}

#[cfg(test)]
mod tests;

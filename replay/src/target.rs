//! The device that is measured.

use cachette::Backends;
use cachette::backends::OpenError;
use cachette_hal::{AnyDevice, Backend, Ordinal};
use cachette_hal_host::HostConfig;

/// The backend whose memory is phantom, so that measurements need no real memory.
pub const HOST: &str = "host";

/// A device, and what to call it in results.
#[derive(Clone, Debug)]
pub struct Target {
    /// The backend's name; says so where a library only imitates the vendor's.
    pub backend: String,
    /// Bytes of phantom memory; `None` where the memory is real.
    pub phantom: Option<u64>,
    /// The device.
    pub device: AnyDevice,
}

impl Target {
    /// Opens a device of `backend`, or of the first backend that has one.
    ///
    /// The host's is given `phantom` bytes that are accounted for and never touched.
    pub fn open(backend: Option<&str>, ordinal: Ordinal, phantom: u64) -> Result<Self, OpenError> {
        match backend {
            Some(HOST) => Self::host(ordinal, phantom),
            Some(name) => Self::on(&*Backends::load(name)?, ordinal),
            None => Backends::names()
                .filter(|name| *name != HOST)
                .find_map(usable)
                .map_or_else(|| Self::host(ordinal, phantom), |backend| Self::on(&*backend, ordinal)),
        }
    }

    /// Opens a host device with `phantom` bytes of phantom memory.
    pub fn host(ordinal: Ordinal, phantom: u64) -> Result<Self, OpenError> {
        let config = HostConfig::default().phantom(true).capacity(phantom);
        let target = Self::on(&*Backends::host(config)?, ordinal)?;
        Ok(Self { phantom: Some(phantom), ..target })
    }

    fn on(backend: &dyn Backend, ordinal: Ordinal) -> Result<Self, OpenError> {
        let info = backend.info();
        let emulated = if info.emulated { " (emulated)" } else { "" };
        Ok(Self {
            backend: format!("{}{emulated}", info.name),
            phantom: None,
            device: Backends::open_on(backend, ordinal)?,
        })
    }
}

/// The backend called `name`, if it can be used here and has a device.
fn usable(name: &str) -> Option<std::sync::Arc<dyn Backend>> {
    let backend = Backends::load(name).ok()?;
    let count = backend.device_count().ok()?;
    (count > 0).then_some(backend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_phantom_and_as_large_as_asked_for() {
        let target = Target::open(Some(HOST), Ordinal(0), 1 << 40).unwrap();
        assert_eq!(target.backend, "host");
        assert_eq!(target.phantom, Some(1 << 40));
        assert_eq!(target.device.info().total_memory, 1 << 40);
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let unknown = Target::open(Some("vulkan"), Ordinal(0), 1).unwrap_err();
        assert!(unknown.to_string().contains("no backend named 'vulkan'"));
        let beyond = Target::open(Some(HOST), Ordinal(7), 1).unwrap_err();
        assert!(beyond.to_string().contains("no device host:7"));
        let empty = Target::open(Some(HOST), Ordinal(0), 0).unwrap_err();
        assert!(empty.to_string().contains("capacity of 0 bytes"));
    }
}

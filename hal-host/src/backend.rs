//! The backend: creates the devices, and stops them when the last reference is dropped.

use std::sync::Arc;

use cachette_hal::{AnyDevice, Backend, BackendInfo, Error, ErrorKind, Ordinal, Result, Vendor, Version};

use crate::config::{ConfigError, HostConfig};
use crate::defect::Defect;
use crate::device::HostDevice;
use crate::engine::machine::Machine;

/// A driver of devices made of host memory; clones share the driver.
///
/// When the last clone and device is dropped, it releases holds, stops and joins the worker threads, drops queued work
/// that has not begun, and unmaps all memory.
#[derive(Clone, Debug)]
pub struct HostBackend {
    owner: Arc<Owner>,
}

/// Keeps the machine running; the last drop stops it.
#[derive(Debug)]
pub(crate) struct Owner {
    info: BackendInfo,
    pub(crate) machine: Arc<Machine>,
}

impl HostBackend {
    /// Creates the devices of a configuration.
    pub fn new(config: HostConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let library = if config.phantom { "phantom memory" } else { "host memory" };
        let info = BackendInfo::new("host", Vendor::Host, Version::new(0, 1), library.to_owned(), false);
        let machine = Machine::new(config)?;
        Ok(Self { owner: Arc::new(Owner { info, machine }) })
    }

    /// Opens one device as its own type.
    pub fn device(&self, ordinal: Ordinal) -> Result<HostDevice> {
        let machine = &self.owner.machine;
        let found = match machine.index(ordinal) {
            None if machine.lies(Defect::WrongErrorForBadOrdinal) => Some(0),
            found => found,
        };
        let index = found.ok_or(Error::new(ErrorKind::NoSuchDevice, "open"))?;
        Ok(HostDevice::new(Arc::clone(&self.owner), index))
    }
}

impl Backend for HostBackend {
    fn info(&self) -> &BackendInfo {
        &self.owner.info
    }

    fn device_count(&self) -> Result<u32> {
        Ok(self.owner.machine.config.devices)
    }

    fn open(&self, ordinal: Ordinal) -> Result<AnyDevice> {
        Ok(Arc::new(self.device(ordinal)?))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A forked child has no workers to stop, and a thread that is missing there may hold a lock.
        if !self.machine.is_child() {
            self.machine.shut_down();
        }
    }
}

//! The backend: loads the driver, and opens its devices.

use std::sync::Arc;

use cachette_hal::load::Candidate;
use cachette_hal::{AnyDevice, Backend, BackendInfo, LoadError, Ordinal, Result};

use crate::device::HipDevice;
use crate::library::{Driver, candidates};

/// The loaded libamdhip64; clones share the driver.
#[derive(Clone, Debug)]
pub struct HipBackend {
    driver: Arc<Driver>,
}

impl HipBackend {
    /// Loads the driver.
    ///
    /// It uses the first library of [`candidates`] that can be opened.
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: the names are the driver's, and the user who sets the variable promises the same of the file.
        unsafe { Self::load_from(&candidates()) }
    }

    /// Loads the first of `candidates` that can be opened.
    ///
    /// # Safety
    ///
    /// Each candidate is the driver's library, or one with the same C interface.
    pub unsafe fn load_from(candidates: &[Candidate]) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let driver = unsafe { Driver::load(candidates) }?;
        Ok(Self { driver })
    }

    /// Opens one device as its own type.
    pub fn device(&self, ordinal: Ordinal) -> Result<HipDevice> {
        HipDevice::open(&self.driver, ordinal)
    }
}

impl Backend for HipBackend {
    fn info(&self) -> &BackendInfo {
        &self.driver.info
    }

    fn device_count(&self) -> Result<u32> {
        self.driver.device_count()
    }

    fn open(&self, ordinal: Ordinal) -> Result<AnyDevice> {
        Ok(Arc::new(self.device(ordinal)?))
    }
}

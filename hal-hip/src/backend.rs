//! The backend: the library, and the way to its devices.

use std::sync::Arc;

use cachette_hal::load::Candidate;
use cachette_hal::{AnyDevice, Backend, BackendInfo, LoadError, Ordinal, Result};

use crate::device::HipDevice;
use crate::library::{Driver, candidates};

/// AMD's driver, loaded; clones are the same driver.
#[derive(Clone, Debug)]
pub struct HipBackend {
    driver: Arc<Driver>,
}

impl HipBackend {
    /// Loads the library from where it usually is; see [`candidates`].
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: they are AMD's runtime by name, or what the user names as one.
        unsafe { Self::load_from(&candidates()) }
    }

    /// Loads the first of these libraries that can be opened.
    ///
    /// # Safety
    ///
    /// Each candidate is AMD's runtime, or keeps to its C interface.
    pub unsafe fn load_from(candidates: &[Candidate]) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let driver = unsafe { Driver::load(candidates) }?;
        Ok(Self { driver })
    }

    /// Opens one device as its own type.
    pub fn device(&self, ordinal: Ordinal) -> Result<HipDevice> {
        Ok(HipDevice { unit: self.driver.unit(ordinal)?, driver: Arc::clone(&self.driver) })
    }
}

impl Backend for HipBackend {
    fn info(&self) -> &BackendInfo {
        &self.driver.info
    }

    fn device_count(&self) -> Result<u32> {
        self.driver.count()
    }

    fn open(&self, ordinal: Ordinal) -> Result<AnyDevice> {
        Ok(Arc::new(self.device(ordinal)?))
    }
}

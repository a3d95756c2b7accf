//! The backend: loads the driver, and opens its devices.

use std::sync::Arc;

use cachette_hal::load::Candidate;
use cachette_hal::{AnyDevice, Backend, BackendInfo, LoadError, Ordinal, Result};

use crate::device::CudaDevice;
use crate::library::{Driver, candidates};

/// The loaded libcuda; clones share the driver.
#[derive(Clone, Debug)]
pub struct CudaBackend {
    driver: Arc<Driver>,
}

impl CudaBackend {
    /// Loads the driver.
    ///
    /// It uses the file that `CACHETTE_CUDA_LIBRARY` names, if that is set. Otherwise it uses the copy of
    /// `libcuda.so.1` that the process has already loaded, or the one that the system finds.
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
        Ok(Self { driver: Arc::new(driver) })
    }

    /// Opens one device as its own type.
    pub fn device(&self, ordinal: Ordinal) -> Result<CudaDevice> {
        CudaDevice::open(Arc::clone(&self.driver), ordinal)
    }
}

impl Backend for CudaBackend {
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

//! The backend: loads the driver, and opens its devices.

use std::sync::Arc;

use cachette_hal::load::Candidate;
use cachette_hal::{AnyDevice, Backend, BackendInfo, LoadError, Ordinal, Result, Vendor};

use crate::device::CudaDevice;
use crate::library::{Driver, candidates};

/// libcuda, loaded; clones are the same driver.
#[derive(Clone, Debug)]
pub struct CudaBackend {
    driver: Arc<Driver>,
    info: BackendInfo,
}

impl CudaBackend {
    /// Loads the driver.
    ///
    /// The file that `CACHETTE_CUDA_LIBRARY` names, if it is set; otherwise the copy of `libcuda.so.1` that
    /// the process has loaded already, or the one that the system finds.
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: the names are the driver's own, and whoever sets the variable says that the file is one.
        unsafe { Self::load_from(&candidates()) }
    }

    /// Loads the first of `candidates` that can be opened.
    ///
    /// # Safety
    ///
    /// Each candidate is the driver's library, or one that keeps to its C interface.
    pub unsafe fn load_from(candidates: &[Candidate]) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let driver = unsafe { Driver::load(candidates) }?;
        let info = BackendInfo::new("cuda", Vendor::Nvidia, driver.version, driver.library.clone(), driver.emulated);
        Ok(Self { driver: Arc::new(driver), info })
    }

    /// Opens one device as its own type.
    pub fn device(&self, ordinal: Ordinal) -> Result<CudaDevice> {
        CudaDevice::open(Arc::clone(&self.driver), ordinal)
    }
}

impl Backend for CudaBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn device_count(&self) -> Result<u32> {
        self.driver.device_count()
    }

    fn open(&self, ordinal: Ordinal) -> Result<AnyDevice> {
        Ok(Arc::new(self.device(ordinal)?))
    }
}

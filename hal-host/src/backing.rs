//! Physical memory without an address.

use std::ffi::CStr;
use std::sync::atomic::AtomicUsize;

use cachette_hal::{Guarded, Sharing};

use crate::mapping::Memory;
use crate::physical::Charge;

/// The name of backings in the lists of open files, by which an import recognises them.
pub(crate) const BACKING: &CStr = c"cachette-backing";

/// Physical memory. It is freed when its handle and all of its mappings are gone.
#[derive(Debug)]
pub(crate) struct BackingMemory {
    pub(crate) bytes: u64,
    /// How it can be exported.
    pub(crate) sharing: Sharing,
    /// `None` if memory is phantom.
    pub(crate) memory: Option<Memory>,
    /// `None` if the memory is accounted for in another process.
    charge: Guarded<Option<Charge>>,
    /// Whether it was created for network cards, which changes nothing here.
    pub(crate) rdma: bool,
    /// The number of its mappings that are being unmapped; a defect reads it.
    pub(crate) unmapping: AtomicUsize,
}

impl BackingMemory {
    pub(crate) const fn new(bytes: u64, sharing: Sharing, memory: Option<Memory>, charge: Option<Charge>) -> Self {
        Self { bytes, sharing, memory, charge: Guarded::new(charge), rdma: false, unmapping: AtomicUsize::new(0) }
    }

    /// Counts the memory as free although it is not; a defect.
    pub(crate) fn forfeit(&self) {
        self.charge.lock().take();
    }
}

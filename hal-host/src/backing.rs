//! Physical memory without an address.

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use cachette_hal::Sharing;

use crate::machine::lock;
use crate::mapping::Memory;
use crate::physical::Charge;

/// How backing is called in the lists of open files, by which an import knows it.
pub(crate) const BACKING: &CStr = c"cachette-backing";

/// Physical memory; it goes with the last of its handle and its mappings.
#[derive(Debug)]
pub(crate) struct BackingMemory {
    bytes: u64,
    sharing: Sharing,
    /// `None` if memory is phantom.
    memory: Option<Memory>,
    /// `None` if another process pays.
    charge: Mutex<Option<Charge>>,
    /// Mappings of it that are being unmapped; a defect looks at it.
    pub(crate) unmapping: AtomicUsize,
}

impl BackingMemory {
    /// Joins memory with what was paid for it.
    pub(crate) const fn new(bytes: u64, sharing: Sharing, memory: Option<Memory>, charge: Option<Charge>) -> Self {
        Self { bytes, sharing, memory, charge: Mutex::new(charge), unmapping: AtomicUsize::new(0) }
    }

    /// Bytes of it.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How it may leave the process.
    pub(crate) const fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Lets the memory count as free though it is not; a defect.
    pub(crate) fn forfeit(&self) {
        lock(&self.charge).take();
    }

    /// The memory itself; `None` if it is phantom.
    pub(crate) const fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }
}

//! Allocators below PyTorch's memory pools, each with two functions of its own.
//!
//! A `MemPool` of PyTorch takes its segments from two C functions, and they have no user data. So there is a fixed number
//! of pairs of functions, compiled in; a [`Slot`] takes one of them, and what it is made of is found by the pair's
//! number. Slots return null where there is no memory, which PyTorch understands here, and never call back: PyTorch may
//! be holding its own lock.

mod functions;
mod serving;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use cachette::Config;
use cachette::hal::{Ordinal, Vendor};
use cachette::pool::PoolStats;
use cachette::source::{Source, SourceError};
use cachette_sources::{Nccl, Nvshmem, Rocshmem};

use crate::error::Error;
use functions::{ALLOCATE, FREE, SLOTS};
use serving::Serving;

/// `void *allocate(size_t size, int device, stream)`.
pub(crate) type AllocateFunction =
    unsafe extern "C-unwind" fn(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void;
/// `void free(void *ptr, size_t size, int device, stream)`.
pub(crate) type FreeFunction =
    unsafe extern "C-unwind" fn(ptr: *mut c_void, size: usize, device: c_int, stream: *mut c_void);

/// What stands behind each pair of functions; it stays there until another slot takes the pair.
static TABLE: RwLock<[Option<Arc<Serving>>; SLOTS]> = RwLock::new([const { None }; SLOTS]);

/// A library whose memory a slot gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedSource {
    /// NCCL, on NVIDIA's devices.
    Nccl,
    /// NVSHMEM, on the NVIDIA device that it was initialised for.
    Nvshmem,
    /// RCCL, on AMD's devices.
    Rccl,
    /// rocSHMEM, on the AMD device that it was initialised for.
    Rocshmem,
}

impl NamedSource {
    const NAMES: [(Self, &'static str); 4] =
        [(Self::Nccl, "nccl"), (Self::Nvshmem, "nvshmem"), (Self::Rccl, "rccl"), (Self::Rocshmem, "rocshmem")];

    /// The name that [`FromStr`] reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(source, _)| *source == self);
        named.map_or("", |(_, name)| name)
    }
}

impl fmt::Display for NamedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl NamedSource {
    /// Opens the library as a source of memory of a device of its vendor.
    ///
    /// # Safety
    ///
    /// 1. NVSHMEM and rocSHMEM are initialised for the device, and stay so while the source is used.
    pub unsafe fn open(self, device: Ordinal) -> Result<Arc<dyn Source>, SourceError> {
        Ok(match self {
            Self::Nccl => Arc::new(Nccl::load(Vendor::Nvidia)?),
            Self::Rccl => Arc::new(Nccl::load(Vendor::Amd)?),
            // SAFETY: 1. the caller's promise.
            Self::Nvshmem => Arc::new(unsafe { Nvshmem::adopt(device) }?),
            // SAFETY: 1. the caller's promise.
            Self::Rocshmem => Arc::new(unsafe { Rocshmem::adopt(device) }?),
        })
    }
}

/// A name that no source has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no source named '{name}'; choose nccl, nvshmem, rccl or rocshmem")]
pub struct UnknownSource {
    /// The name asked for.
    pub name: String,
}

impl FromStr for NamedSource {
    type Err = UnknownSource;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = Self::NAMES.iter().find(|(_, known)| *known == name);
        named.map(|(source, _)| *source).ok_or(UnknownSource { name: name.to_owned() })
    }
}

/// What a slot is made like.
#[derive(Clone, Debug, Default)]
pub struct SlotOptions {
    /// How its allocators behave.
    pub config: Config,
    /// Whose memory it gives out; the device's own where none is named.
    pub source: Option<NamedSource>,
    /// Whether each request gets a segment of its own.
    pub no_split: bool,
}

/// An allocator for a `MemPool` of PyTorch, with two functions of its own.
///
/// It has a pool of its own on every device, made at first use. Dropped, it gives out no more memory; its functions serve
/// another slot once all that it gave out is freed.
#[derive(Debug)]
pub struct Slot {
    number: usize,
    serving: Arc<Serving>,
}

impl Slot {
    /// Takes a pair of functions that serves nobody.
    ///
    /// # Safety
    ///
    /// 1. Where the source is NVSHMEM or rocSHMEM, it is initialised, for every device that memory is asked of, before
    ///    memory is first asked for and until the last of it is freed.
    pub unsafe fn create(options: SlotOptions) -> Result<Self, Error> {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        let is_unused = |place: &Option<Arc<Serving>>| place.as_ref().is_none_or(|serving| serving.is_over());
        let number = table.iter().position(is_unused);
        let number = number.ok_or(Error::NoSlot { most: SLOTS })?;
        let serving = Arc::new(Serving::new(options));
        let before = table[number].replace(Arc::clone(&serving));
        // What served before gives its memory back to the driver, which is not this lock's affair.
        drop(table);
        drop(before);
        Ok(Self { number, serving })
    }

    /// Which pair of functions it has.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// What it was made like.
    #[must_use]
    pub fn options(&self) -> &SlotOptions {
        self.serving.options()
    }

    /// The address of its function `void *(size_t size, int device, stream)`.
    #[must_use]
    pub fn alloc_address(&self) -> usize {
        ALLOCATE[self.number] as usize
    }

    /// The address of its function `void (void *ptr, size_t size, int device, stream)`.
    #[must_use]
    pub fn free_address(&self) -> usize {
        FREE[self.number] as usize
    }

    /// Opens its pool on a device now, so that what is missing is told here and not by a request.
    pub fn open(&self, device: u32) -> Result<(), Error> {
        self.serving.at(device).map(|_| ())
    }

    /// What its pool on a device holds; `None` if that was never used.
    #[must_use]
    pub fn stats(&self, device: u32) -> Option<PoolStats> {
        self.serving.stats(device)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.serving.retire();
    }
}

/// What stands behind a pair of functions.
fn serving(number: usize) -> Option<Arc<Serving>> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.get(number)?.clone()
}

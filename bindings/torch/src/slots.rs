//! Allocators below PyTorch's memory pools, each with two C functions.
//!
//! A `MemPool` of PyTorch takes its segments from two C functions, and they have no user data. So a fixed number of
//! pairs of functions is compiled in. A [`Slot`] takes one of them, and its state is found by the pair's number. Slots
//! return null on out-of-memory, which PyTorch handles here. They never call back, since PyTorch may hold its own lock.

mod functions;
mod serving;

use std::ffi::{c_int, c_void};
use std::sync::{Arc, PoisonError, RwLock};

use cachette::Config;
use cachette::pool::PoolStats;
use cachette_sources::NamedSource;

use crate::error::Error;
use functions::{ALLOCATE, FREE, SLOTS};
use serving::Serving;

/// `void *allocate(size_t size, int device, stream)`.
pub(crate) type AllocateFunction =
    unsafe extern "C-unwind" fn(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void;
/// `void free(void *ptr, size_t size, int device, stream)`.
pub(crate) type FreeFunction =
    unsafe extern "C-unwind" fn(ptr: *mut c_void, size: usize, device: c_int, stream: *mut c_void);

/// The state of each pair of functions. It stays until another slot uses the pair.
static TABLE: RwLock<[Option<Arc<Serving>>; SLOTS]> = RwLock::new([const { None }; SLOTS]);

/// The options of a slot.
#[derive(Clone, Debug, Default)]
pub struct SlotOptions {
    /// The configuration of its allocators.
    pub config: Config,
    /// The library that allocates the segments; `None` for the device.
    pub source: Option<NamedSource>,
    /// Whether each request gets a separate segment.
    pub no_split: bool,
}

/// An allocator for a `MemPool` of PyTorch, with two C functions.
///
/// It has one pool per device, created at first use. A dropped slot allocates no more memory. Its functions serve another
/// slot once all its memory is freed.
#[derive(Debug)]
pub struct Slot {
    number: usize,
    serving: Arc<Serving>,
}

impl Slot {
    /// Reserves an unused pair of functions.
    ///
    /// # Safety
    ///
    /// 1. If the source is NVSHMEM or rocSHMEM, it is initialised for every device that the slot is used on. That holds
    ///    from the first allocation until all memory is freed.
    pub unsafe fn create(options: SlotOptions) -> Result<Self, Error> {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        let is_unused = |place: &Option<Arc<Serving>>| place.as_ref().is_none_or(|serving| serving.is_over());
        let number = table.iter().position(is_unused);
        let number = number.ok_or(Error::NoSlot { most: SLOTS })?;
        let serving = Arc::new(Serving::new(options));
        let before = table[number].replace(Arc::clone(&serving));
        // The previous state releases its memory to the driver, which must not happen under this lock.
        drop(table);
        drop(before);
        Ok(Self { number, serving })
    }

    /// The number of its pair of functions.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Its options.
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

    /// Opens its pool on a device now, so that this call and not a later request reports a missing library.
    pub fn open(&self, device: u32) -> Result<(), Error> {
        self.serving.at(device).map(|_| ())
    }

    /// The statistics of its pool on a device; `None` if the device was never used.
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

/// The state of a pair of functions.
fn serving(number: usize) -> Option<Arc<Serving>> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.get(number)?.clone()
}

//! Allocates pinned memory, and frees it with the call that matches the allocation.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use cachette_hal::{self as hal, Call, ErrorKind, HostMemory};

use super::prefault;
pub(super) use super::prefault::PAGE;
use crate::config::Config;

/// Pinned memory, and the way it was allocated.
#[derive(Clone, Copy, Debug)]
pub(super) struct PinnedMemory {
    pub(super) ptr: NonNull<u8>,
    origin: PinnedOrigin,
}

#[derive(Clone, Copy, Debug)]
enum PinnedOrigin {
    Driver,
    /// Allocated by the program's global allocator at `base`, and then registered.
    Registered {
        base: NonNull<u8>,
        layout: Layout,
    },
    /// It is a part of the reserve segment.
    Reserve,
}

// SAFETY: the pointers are only numbers here; the memory is bound to no thread.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Allocates memory as `config` selects. Every byte is initialised.
    pub(super) fn make(driver: &dyn HostMemory, bytes: usize, config: &Config) -> hal::Result<Self> {
        if config.pinned_use_host_register() {
            return Self::register(driver, bytes, config.pinned_register_threads() as usize);
        }
        Ok(Self { ptr: driver.allocate_pinned(bytes)?, origin: PinnedOrigin::Driver })
    }

    fn register(driver: &dyn HostMemory, bytes: usize, threads: usize) -> hal::Result<Self> {
        let exhausted = hal::Error::new(ErrorKind::OutOfMemory, Call::Register.name());
        let bytes = bytes.next_multiple_of(PAGE);
        // Zeroed, so that it can be read. One more page replaces an alignment: large zeroed memory without one comes
        // untouched from the system, so that all threads can touch it.
        let layout = Layout::from_size_align(bytes + PAGE, 1).map_err(|_| exhausted)?;
        // SAFETY: the layout has at least a page.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or(exhausted)?;
        let first_page = base.as_ptr().with_addr(base.addr().get().next_multiple_of(PAGE));
        let ptr = NonNull::new(first_page).unwrap_or(base);
        let memory = Self { ptr, origin: PinnedOrigin::Registered { base, layout } };
        // SAFETY: `bytes` bytes from the first page on lie in the new allocation, and no other code has their address.
        unsafe { prefault::touch(memory.ptr, bytes, threads) };
        // SAFETY: the range is allocated, and stays so until it is unregistered.
        if let Err(error) = unsafe { driver.register(memory.ptr, bytes) } {
            // SAFETY: it was just allocated with this layout, and the driver has not registered it.
            unsafe { alloc::dealloc(base.as_ptr(), layout) };
            return Err(error);
        }
        Ok(memory)
    }

    /// Frees memory; a failure changes nothing. Memory of the reserve segment is freed with the segment.
    ///
    /// # Safety
    ///
    /// 1. The memory was allocated with `driver`, and is freed once.
    /// 2. Neither the device nor the host uses it.
    pub(super) unsafe fn give_back(self, driver: &dyn HostMemory) -> hal::Result<()> {
        match self.origin {
            // SAFETY: 1. and 2. the caller's promises.
            PinnedOrigin::Driver => unsafe { driver.free_pinned(self.ptr) },
            PinnedOrigin::Registered { base, layout } => {
                // SAFETY: 1. and 2. the caller's promises.
                unsafe { driver.unregister(self.ptr) }?;
                // SAFETY: it was allocated with this layout, and is no longer registered.
                unsafe { alloc::dealloc(base.as_ptr(), layout) };
                Ok(())
            }
            PinnedOrigin::Reserve => Ok(()),
        }
    }

    pub(super) const fn is_of_reserve(self) -> bool {
        matches!(self.origin, PinnedOrigin::Reserve)
    }

    /// The address, from which [`PinnedBlocks`](super::blocks::PinnedBlocks) makes pointers again.
    pub(super) fn expose(self) -> u64 {
        self.ptr.as_ptr().expose_provenance() as u64
    }
}

/// The reserve segment. Other segments are cut from it in order, and are returned to the driver together with it.
pub(super) struct PinnedReserve {
    pub(super) segment: PinnedMemory,
    pub(super) bytes: usize,
    /// Bytes already cut off; a multiple of [`PAGE`].
    pub(super) used: usize,
}

impl PinnedReserve {
    /// Cuts off `bytes` bytes, or all that is left if that is at least `least`.
    pub(super) fn cut(&mut self, least: usize, bytes: usize) -> Option<(PinnedMemory, usize)> {
        let bytes = bytes.min(self.bytes - self.used);
        if bytes < least {
            return None;
        }
        let ptr = NonNull::new(self.segment.ptr.as_ptr().wrapping_add(self.used))?;
        self.used += bytes;
        Some((PinnedMemory { ptr, origin: PinnedOrigin::Reserve }, bytes))
    }
}

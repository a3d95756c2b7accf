//! Allocates pinned memory, and frees it with the call that matches the allocation.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use cachette_hal::{self as hal, Call, ErrorKind, HostMemory};

use super::prefault::{self, PAGE};
use crate::config::Config;

/// Pinned memory, and how it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct PinnedMemory {
    pub(super) ptr: NonNull<u8>,
    origin: PinnedOrigin,
}

#[derive(Clone, Copy, Debug)]
enum PinnedOrigin {
    Driver,
    /// By the program's own allocator, at `base`; then registered.
    Registered {
        base: NonNull<u8>,
        layout: Layout,
    },
    /// It is a part of the reserve segment.
    Reserve,
}

// SAFETY: the pointers are only numbers here; the memory belongs to no thread.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Makes memory in the way that `config` says; every byte is initialised.
    pub(super) fn make(driver: &dyn HostMemory, bytes: usize, config: &Config) -> hal::Result<Self> {
        if config.pinned_use_host_register() {
            return Self::register(driver, bytes, config.pinned_register_threads() as usize);
        }
        Ok(Self { ptr: driver.allocate_pinned(bytes)?, origin: PinnedOrigin::Driver })
    }

    fn register(driver: &dyn HostMemory, bytes: usize, threads: usize) -> hal::Result<Self> {
        let exhausted = hal::Error::new(ErrorKind::OutOfMemory, Call::Register.name());
        let bytes = bytes.next_multiple_of(PAGE);
        // Zeroed, so that it may be read; and with a page more instead of an alignment, since large zeroed memory
        // without one comes untouched from the system, and is left for all threads to touch.
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
            // SAFETY: it was allocated with this layout just now, and the driver does not have it.
            unsafe { alloc::dealloc(base.as_ptr(), layout) };
            return Err(error);
        }
        Ok(memory)
    }

    /// Gives memory back; a failure changes nothing. What is a part of the reserve segment goes with that.
    ///
    /// # Safety
    ///
    /// 1. The memory was made with `driver`, and is given back once.
    /// 2. Neither the device nor the host uses it.
    pub(super) unsafe fn give_back(self, driver: &dyn HostMemory) -> hal::Result<()> {
        match self.origin {
            // SAFETY: 1. and 2. the caller's promises.
            PinnedOrigin::Driver => unsafe { driver.free_pinned(self.ptr) },
            PinnedOrigin::Registered { base, layout } => {
                // SAFETY: 1. and 2. the caller's promises.
                unsafe { driver.unregister(self.ptr) }?;
                // SAFETY: it was allocated with this layout, and no driver has it any more.
                unsafe { alloc::dealloc(base.as_ptr(), layout) };
                Ok(())
            }
            PinnedOrigin::Reserve => Ok(()),
        }
    }

    pub(super) const fn is_of_reserve(self) -> bool {
        matches!(self.origin, PinnedOrigin::Reserve)
    }

    pub(super) fn address(self) -> usize {
        self.ptr.addr().get()
    }
}

/// The reserve segment, from which blocks are cut one after the other. They go back to the driver with it.
#[derive(Debug)]
pub(super) struct PinnedReserve {
    pub(super) segment: PinnedMemory,
    pub(super) bytes: usize,
    /// Bytes that were cut off; a multiple of [`PAGE`].
    pub(super) used: usize,
}

impl PinnedReserve {
    pub(super) fn cut(&mut self, bytes: usize) -> Option<PinnedMemory> {
        let step = bytes.checked_next_multiple_of(PAGE)?;
        if step > self.bytes - self.used {
            return None;
        }
        let ptr = NonNull::new(self.segment.ptr.as_ptr().wrapping_add(self.used))?;
        self.used += step;
        Some(PinnedMemory { ptr, origin: PinnedOrigin::Reserve })
    }
}

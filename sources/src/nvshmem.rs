//! Symmetric memory of NVSHMEM: at the same offset in every rank.

mod abi;
mod library;

use std::ffi::c_void;

use cachette::source::checks::{aligned, check_bytes, not_null};
use cachette::source::{ALIGNMENT, AllocContext, Source, SourceError};
use cachette_hal::{DevicePtr, Ordinal};

use crate::check_device;
use crate::convert::{address, pointer, size};
use crate::current_device::CurrentDevice;
pub use abi::UniqueId;
use library::{LibraryLock, lock_library};
pub use library::{NvshmemLibrary, NvshmemStatus};

const NAME: &str = "NVSHMEM";

/// Symmetric memory on one NVIDIA device.
///
/// Allocating and freeing are collective: every rank does it in the same order with the same sizes, and each waits for
/// the others. The order of an allocator depends only on its requests, so ranks that run the same program agree.
///
/// The library serves one device a process. After its initialisation, the driver waits for each copy and fill in that
/// device's context (`CU_CTX_SYNC_MEMOPS`).
#[derive(Debug)]
#[doc(alias = "nvshmem_malloc")]
#[doc(alias = "nvshmem_free")]
pub struct Nvshmem {
    library: NvshmemLibrary,
    current: CurrentDevice,
    device: Ordinal,
}

impl Nvshmem {
    /// Finds the library and initialises it for this process alone; see [`NvshmemLibrary::single`].
    pub fn single(device: Ordinal) -> Result<Self, SourceError> {
        NvshmemLibrary::find()?.single(device)
    }

    /// Finds the library, which other code has initialised; see [`NvshmemLibrary::adopt`].
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    pub unsafe fn adopt(device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        unsafe { NvshmemLibrary::find()?.adopt(device) }
    }

    pub(crate) const fn new(library: NvshmemLibrary, current: CurrentDevice, device: Ordinal) -> Self {
        Self { library, current, device }
    }

    /// The library.
    #[must_use]
    pub const fn library(&self) -> &NvshmemLibrary {
        &self.library
    }

    /// The device that it serves.
    #[must_use]
    pub const fn device(&self) -> Ordinal {
        self.device
    }

    /// This process among its peers, and their number.
    #[must_use]
    pub fn rank(&self) -> (u32, u32) {
        let _lock = lock_library();
        // SAFETY: it reads the library's state.
        let rank = unsafe { (self.library.calls.rank)() };
        // SAFETY: it reads the library's state.
        let ranks = unsafe { (self.library.calls.ranks)() };
        (rank.unsigned_abs(), ranks.unsigned_abs())
    }

    /// Finalises the library, with all ranks at once.
    ///
    /// Dropping does not finalise it, because the library ends the process if that fails. The call has no effect if
    /// other code has initialised the library too and has not finalised it yet.
    ///
    /// # Safety
    ///
    /// 1. No memory of the library is in use.
    /// 2. [`single`](NvshmemLibrary::single) or [`join`](NvshmemLibrary::join) made this source. An adopted library is
    ///    finalised by the code that initialised it.
    pub unsafe fn close(self) -> Result<(), SourceError> {
        let lock = lock_library();
        self.check_ready(&lock)?;
        let _current = self.current.enter(self.device)?;
        // SAFETY: 1. and 2. are the caller's promises.
        unsafe { (self.library.calls.finalize)() };
        Ok(())
    }

    /// Refuses a call that would end the process: the library allocates and frees only while it is initialised.
    fn check_ready(&self, lock: &LibraryLock) -> Result<(), SourceError> {
        if self.library.status_locked(lock) == NvshmemStatus::Initialised {
            return Ok(());
        }
        Err(SourceError::other(
            "NVSHMEM was finalised by other code",
            "keep it initialised as long as its memory is used",
        ))
    }

    /// Allocates memory at a multiple of [`ALIGNMENT`]; the device is current.
    fn allocate_aligned(&self, bytes: u64) -> *mut c_void {
        let calls = &self.library.calls;
        // SAFETY: the library is initialised, and this thread has the lock.
        let at = unsafe { (calls.allocate)(size(bytes)) };
        if address(at).is_multiple_of(ALIGNMENT) {
            return at;
        }
        // SAFETY: it was allocated above, and no other code has it.
        unsafe { (calls.free)(at) };
        // SAFETY: the library is initialised, and this thread has the lock.
        unsafe { (calls.allocate_aligned)(size(ALIGNMENT), size(bytes)) }
    }
}

// SAFETY: 1. 2. 3. the library documents them for both functions; earlier failures change nothing.
unsafe impl Source for Nvshmem {
    fn name(&self) -> &str {
        NAME
    }

    unsafe fn allocate(&self, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(NAME, bytes)?;
        check_device(NAME, self.device, context)?;
        let lock = lock_library();
        self.check_ready(&lock)?;
        let _current = self.current.enter(self.device)?;
        let at = self.allocate_aligned(bytes);
        let ptr = not_null(NAME, address(at), bytes, context)?;
        aligned(NAME, ptr, ALIGNMENT, || {
            // SAFETY: it was allocated above, and no other code has it.
            unsafe { (self.library.calls.free)(at) };
            Ok(())
        })
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: u64, context: &AllocContext) -> Result<(), SourceError> {
        check_device(NAME, self.device, context)?;
        let lock = lock_library();
        self.check_ready(&lock)?;
        let _current = self.current.enter(self.device)?;
        // SAFETY: the caller's promises, and this thread has the lock.
        unsafe { (self.library.calls.free)(pointer(ptr)) };
        Ok(())
    }
}

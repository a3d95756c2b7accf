//! Symmetric memory of NVSHMEM: at the same offset in every rank.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::MutexGuard;

use cachette::source::checks::{aligned, check_bytes, not_null};
use cachette::source::{ALIGNMENT, AllocContext, Source, SourceError};
use cachette_hal::load::Library;
use cachette_hal::{DevicePtr, Guarded, Ordinal, symbol_table};

use crate::check_device;
use crate::convert::{address, pointer, size};
use crate::library::VendorLibrary;

const NAME: &str = "NVSHMEM";
const NVSHMEM: VendorLibrary = VendorLibrary {
    product: "NVSHMEM 3",
    names: &["libnvshmem_host.so.3", "libnvshmem_host.so"],
    variable: "CACHETTE_NVSHMEM_LIBRARY",
};
/// The first status of `nvshmemx_init_status` with which the library can allocate.
const INITIALISED: c_int = 2;

symbol_table! {
    /// The functions that allocate.
    struct NvshmemCalls {
        required {
            allocate as "nvshmem_malloc": fn(bytes: usize) -> *mut c_void;
            allocate_aligned as "nvshmem_align": fn(alignment: usize, bytes: usize) -> *mut c_void;
            free as "nvshmem_free": fn(ptr: *mut c_void);
            status as "nvshmemx_init_status": fn() -> c_int;
        }
    }
}

/// Symmetric memory on one NVIDIA device.
///
/// The program initialises the library, and finalises it after the last use of its memory. Allocating and freeing are
/// collective: every rank does it in the same order with the same sizes, and each waits for the others. The order of an
/// allocator depends only on its requests, so ranks that run the same program agree.
///
/// The library serves one device a process. After its initialisation, the driver waits for each copy and fill in that
/// device's context (`CU_CTX_SYNC_MEMOPS`).
#[derive(Debug)]
#[doc(alias = "nvshmem_malloc")]
#[doc(alias = "nvshmem_free")]
pub struct Nvshmem {
    calls: NvshmemCalls,
    device: Ordinal,
}

impl Nvshmem {
    /// Uses a library that other code of the process has initialised and will finalise.
    ///
    /// `CACHETTE_NVSHMEM_LIBRARY` names its file. By default it is the copy that the process has loaded, or the
    /// one that the system finds.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    pub unsafe fn adopt(device: Ordinal) -> Result<Self, SourceError> {
        Self::with(&NVSHMEM.find()?, device)
    }

    /// Uses the library at `path`, which other code has initialised.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    /// 2. The file is NVSHMEM's host library, or has its C interface.
    pub unsafe fn open(path: impl AsRef<Path>, device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 2. is the caller's promise.
        Self::with(&unsafe { NVSHMEM.open(path.as_ref()) }?, device)
    }

    fn with(library: &Library, device: Ordinal) -> Result<Self, SourceError> {
        let calls = NvshmemCalls::resolve(library).map_err(|error| NVSHMEM.missing(error))?;
        if !calls.is_initialised(&lock_library()) {
            return Err(SourceError::unavailable(
                format!("{} is not initialised", library.name()),
                "initialise NVSHMEM in the program first, for example by nvshmemx_init_attr",
            ));
        }
        Ok(Self { calls, device })
    }

    /// Refuses a call that would end the process: the library allocates and frees only while it is initialised.
    fn check_ready(&self, lock: &LibraryLock) -> Result<(), SourceError> {
        if self.calls.is_initialised(lock) {
            return Ok(());
        }
        Err(SourceError::other(
            "NVSHMEM was finalised by other code",
            "keep it initialised as long as its memory is used",
        ))
    }

    /// Allocates memory at a multiple of [`ALIGNMENT`].
    fn allocate_aligned(&self, bytes: u64) -> *mut c_void {
        // SAFETY: the library is initialised, and this thread has the lock.
        let at = unsafe { (self.calls.allocate)(size(bytes)) };
        if address(at).is_multiple_of(ALIGNMENT) {
            return at;
        }
        // SAFETY: it was allocated above, and no other code has it.
        unsafe { (self.calls.free)(at) };
        // SAFETY: the library is initialised, and this thread has the lock.
        unsafe { (self.calls.allocate_aligned)(size(ALIGNMENT), size(bytes)) }
    }
}

impl NvshmemCalls {
    fn is_initialised(&self, _lock: &LibraryLock) -> bool {
        // SAFETY: it reads the library's state.
        unsafe { (self.status)() >= INITIALISED }
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
        let at = self.allocate_aligned(bytes);
        let ptr = not_null(NAME, address(at), bytes, context)?;
        aligned(NAME, ptr, ALIGNMENT, || {
            // SAFETY: it was allocated above, and no other code has it.
            unsafe { (self.calls.free)(at) };
            Ok(())
        })
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: u64, context: &AllocContext) -> Result<(), SourceError> {
        check_device(NAME, self.device, context)?;
        let lock = lock_library();
        self.check_ready(&lock)?;
        // SAFETY: the caller's promises, and this thread has the lock.
        unsafe { (self.calls.free)(pointer(ptr)) };
        Ok(())
    }
}

type LibraryLock = MutexGuard<'static, ()>;

/// Locks the library, which is not thread-safe.
fn lock_library() -> LibraryLock {
    static LOCK: Guarded<()> = Guarded::new(());
    LOCK.lock()
}

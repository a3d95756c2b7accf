//! Symmetric memory of rocSHMEM: at the same offset in every rank.

use std::ffi::c_void;
use std::path::Path;
use std::sync::MutexGuard;

use cachette::source::checks::{aligned, check_bytes, not_null};
use cachette::source::{ALIGNMENT, AllocContext, Source, SourceError};
use cachette_hal::load::Library;
use cachette_hal::{DevicePtr, Guarded, Ordinal};

use crate::check_device;
use crate::convert::{address, pointer, size};
use crate::library::VendorLibrary;

const NAME: &str = "rocSHMEM";
const ROCSHMEM: VendorLibrary =
    VendorLibrary { product: NAME, names: &["librocshmem.so"], variable: "CACHETTE_ROCSHMEM_LIBRARY" };
/// The C name, which a library of wrappers may have, and the mangled C++ name.
const ALLOCATE: [&str; 2] = ["rocshmem_malloc", "_ZN8rocshmem15rocshmem_mallocEm"];
const FREE: [&str; 2] = ["rocshmem_free", "_ZN8rocshmem13rocshmem_freeEPv"];

/// `void *rocshmem_malloc(size_t size)`.
pub type RocshmemMalloc = unsafe extern "C" fn(bytes: usize) -> *mut c_void;
/// `void rocshmem_free(void *ptr)`.
pub type RocshmemFree = unsafe extern "C" fn(ptr: *mut c_void);

/// Symmetric memory on one AMD device.
///
/// rocSHMEM is built as a static library whose functions have C++ names. A program that links it passes its two
/// functions to [`from_functions`](Self::from_functions). [`adopt`](Self::adopt) finds a shared library that contains
/// it, by the C names or the C++ ones. The program must have initialised it: rocSHMEM ends the process if it allocates
/// before that.
///
/// Allocating and freeing are collective: every rank does it in the same order with the same sizes, and each waits for
/// the others.
#[derive(Debug)]
#[doc(alias = "rocshmem_malloc")]
#[doc(alias = "rocshmem_free")]
pub struct Rocshmem {
    allocate: RocshmemMalloc,
    free: RocshmemFree,
    device: Ordinal,
}

impl Rocshmem {
    /// Uses a shared library that the program has initialised.
    ///
    /// `CACHETTE_ROCSHMEM_LIBRARY` names its file. By default it is the copy that the process has loaded, or the
    /// one that the system finds.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    pub unsafe fn adopt(device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        unsafe { Self::with(&ROCSHMEM.find()?, device) }
    }

    /// Uses the shared library at `path`, which the program has initialised.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    /// 2. The file is rocSHMEM, or has its interface.
    pub unsafe fn open(path: impl AsRef<Path>, device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 2. is the caller's promise.
        let library = unsafe { ROCSHMEM.open(path.as_ref()) }?;
        // SAFETY: 1. is the caller's promise.
        unsafe { Self::with(&library, device) }
    }

    /// Uses the functions of a program that has linked and initialised rocSHMEM.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    /// 2. They are `rocshmem::rocshmem_malloc` and `rocshmem::rocshmem_free`, or call them.
    #[must_use]
    pub const unsafe fn from_functions(allocate: RocshmemMalloc, free: RocshmemFree, device: Ordinal) -> Self {
        Self { allocate, free, device }
    }

    /// # Safety
    ///
    /// 1. The library is rocSHMEM, initialised for `device`.
    unsafe fn with(library: &Library, device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 1. determines the types of the functions.
        let allocate = ALLOCATE.iter().find_map(|name| unsafe { library.find(name) });
        // SAFETY: 1. determines the types of the functions.
        let free = FREE.iter().find_map(|name| unsafe { library.find(name) });
        let (Some(allocate), Some(free)) = (allocate, free) else {
            let each = [(allocate.is_none(), ALLOCATE), (free.is_none(), FREE)];
            let missing = each.iter().filter(|(missing, _)| *missing);
            let names: Vec<_> = missing.map(|(_, names)| names.join(" or ")).collect();
            return Err(SourceError::unavailable(
                format!("{} is not usable as rocSHMEM: it lacks {}", library.name(), names.join(", ")),
                "rocSHMEM is a static library; link it into the program and use `from_functions`",
            ));
        };
        // SAFETY: 1. is the caller's promise; the library is never closed.
        Ok(unsafe { Self::from_functions(allocate, free, device) })
    }
}

// SAFETY: 1. 2. 3. the library documents them for both functions; earlier failures change nothing.
unsafe impl Source for Rocshmem {
    fn name(&self) -> &str {
        NAME
    }

    unsafe fn allocate(&self, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(NAME, bytes)?;
        check_device(NAME, self.device, context)?;
        let _lock = lock_library();
        // SAFETY: rocSHMEM is initialised by promise 1 of every constructor, and this thread has the lock.
        let at = unsafe { (self.allocate)(size(bytes)) };
        let ptr = not_null(NAME, address(at), bytes, context)?;
        aligned(NAME, ptr, ALIGNMENT, || {
            // SAFETY: it was allocated above, and no other code has it.
            unsafe { (self.free)(at) };
            Ok(())
        })
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: u64, context: &AllocContext) -> Result<(), SourceError> {
        check_device(NAME, self.device, context)?;
        let _lock = lock_library();
        // SAFETY: the caller's promises, and this thread has the lock.
        unsafe { (self.free)(pointer(ptr)) };
        Ok(())
    }
}

/// Locks the library, which is not thread-safe.
fn lock_library() -> MutexGuard<'static, ()> {
    static LOCK: Guarded<()> = Guarded::new(());
    LOCK.lock()
}

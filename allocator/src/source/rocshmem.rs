//! Symmetric memory of rocSHMEM: every rank has it, at the same offset.

use std::ffi::c_void;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cachette_hal::load::Library;
use cachette_hal::{DevicePtr, Ordinal, Vendor};

use super::accept::{aligned, check_bytes, not_null};
use super::convert::{address, pointer, size};
use super::current::Current;
use super::library::Sought;
use super::{ALIGNMENT, AllocContext, Source, SourceError};

const NAME: &str = "rocSHMEM";
const ROCSHMEM: Sought = Sought { what: "rocSHMEM", names: &["librocshmem.so"], variable: "CACHETTE_ROCSHMEM_LIBRARY" };
/// C's name, which a library of wrappers may have, and the one that C++ makes of it in its namespace.
const ALLOCATE: [&str; 2] = ["rocshmem_malloc", "_ZN8rocshmem15rocshmem_mallocEm"];
const FREE: [&str; 2] = ["rocshmem_free", "_ZN8rocshmem13rocshmem_freeEPv"];

/// `void *rocshmem_malloc(size_t size)`.
type Allocate = unsafe extern "C" fn(bytes: usize) -> *mut c_void;
/// `void rocshmem_free(void *ptr)`.
type Free = unsafe extern "C" fn(ptr: *mut c_void);

/// Symmetric memory on one AMD device.
///
/// rocSHMEM is built as a static library whose functions have C++ names. A program that links it passes its two
/// functions to [`from_functions`](Self::from_functions). A shared library that holds it is found by
/// [`adopt`](Self::adopt), under C's names or the C++ ones. Either way the program has initialised it: rocSHMEM ends
/// the process where it is asked for memory before.
///
/// Making and freeing it is collective: every rank does it in the same order with the same sizes, and each waits for
/// the others.
#[derive(Debug)]
#[doc(alias = "rocshmem_malloc")]
#[doc(alias = "rocshmem_free")]
pub struct Rocshmem {
    allocate: Allocate,
    free: Free,
    current: Current,
    device: Ordinal,
}

impl Rocshmem {
    /// Takes over a shared library that the program has initialised.
    ///
    /// `CACHETTE_ROCSHMEM_LIBRARY` names its file. Otherwise it is the copy that the process has loaded, or the one
    /// that the system finds.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    pub unsafe fn adopt(device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        unsafe { Self::with(&ROCSHMEM.find()?, device) }
    }

    /// Takes over the shared library at `path`, which the program has initialised.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    /// 2. The file is rocSHMEM's, or keeps to its interface.
    pub unsafe fn open(path: impl AsRef<Path>, device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 2. is the caller's promise.
        let library = unsafe { ROCSHMEM.open(path.as_ref()) }?;
        // SAFETY: 1. is the caller's promise.
        unsafe { Self::with(&library, device) }
    }

    /// Uses the functions of a program that has rocSHMEM linked in and initialised.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    /// 2. They are `rocshmem::rocshmem_malloc` and `rocshmem::rocshmem_free`, or pass to them.
    pub unsafe fn from_functions(
        allocate: unsafe extern "C" fn(bytes: usize) -> *mut c_void,
        free: unsafe extern "C" fn(ptr: *mut c_void),
        device: Ordinal,
    ) -> Result<Self, SourceError> {
        Ok(Self { allocate, free, current: Current::load(Vendor::Amd)?, device })
    }

    /// # Safety
    ///
    /// 1. The library is rocSHMEM, initialised for `device`.
    unsafe fn with(library: &Library, device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 1. says what the functions are.
        let allocate = ALLOCATE.iter().find_map(|name| unsafe { library.find(name) });
        // SAFETY: 1. says what the functions are.
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
        unsafe { Self::from_functions(allocate, free, device) }
    }

    fn check_place(&self, place: &AllocContext) -> Result<(), SourceError> {
        if place.device == self.device {
            return Ok(());
        }
        let (asked, device) = (place.device, self.device);
        Err(SourceError::other(
            format!("rocSHMEM serves device {device} in this process, not device {asked}"),
            "use it on its own device alone",
        ))
    }
}

// SAFETY: 1. 2. 3. the library documents them of `rocshmem_malloc` and `rocshmem_free`; what fails before a call changes nothing.
unsafe impl Source for Rocshmem {
    fn name(&self) -> &str {
        NAME
    }

    unsafe fn allocate(&self, bytes: u64, place: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(NAME, bytes)?;
        self.check_place(place)?;
        let _turn = one_at_a_time();
        let _entered = self.current.enter(self.device)?;
        // SAFETY: rocSHMEM is initialised by promise 1 of every constructor, and this thread has the turn.
        let at = unsafe { (self.allocate)(size(bytes)) };
        let ptr = not_null(NAME, address(at), bytes, place)?;
        aligned(NAME, ptr, ALIGNMENT, || {
            // SAFETY: it was made above, and nobody knows it.
            unsafe { (self.free)(at) };
            Ok(())
        })
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: u64, place: &AllocContext) -> Result<(), SourceError> {
        self.check_place(place)?;
        let _turn = one_at_a_time();
        let _entered = self.current.enter(self.device)?;
        // SAFETY: the caller's promises, and this thread has the turn.
        unsafe { (self.free)(pointer(ptr)) };
        Ok(())
    }
}

/// Waits until no other thread is in the library, which does not stand two at once.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

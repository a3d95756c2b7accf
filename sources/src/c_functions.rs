//! C functions with the signatures of PyTorch's pluggable allocator, as the functions of a source.

use std::ffi::{c_int, c_void};
use std::path::Path;

use cachette::source::checks::not_null;
use cachette::source::{AllocContext, FunctionSource, SourceError};
use cachette_hal::DevicePtr;
use cachette_hal::load::Library;

use crate::convert::{address, number, pointer, stream};
use crate::library::open_user_library;

/// `void *allocate(ssize_t size, int device, void *stream)`; null means out of memory.
pub type CAllocate = unsafe extern "C" fn(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void;
/// `void free(void *ptr, ssize_t size, int device, void *stream)`.
pub type CFree = unsafe extern "C" fn(ptr: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void);

/// The two functions of a source.
#[derive(Clone, Debug)]
pub struct CFunctions {
    name: String,
    allocate: CAllocate,
    free: CFree,
}

impl CFunctions {
    /// The functions of a source called `name`.
    pub fn new(name: impl Into<String>, allocate: CAllocate, free: CFree) -> Self {
        Self { name: name.into(), allocate, free }
    }

    /// Two functions of a shared library; the source gets the name of the library's file.
    ///
    /// The system searches for a `path` without a folder. The library stays loaded until the process ends.
    ///
    /// # Safety
    ///
    /// 1. The library's initialisers are sound to run.
    /// 2. The symbols are functions of the types [`CAllocate`] and [`CFree`].
    pub unsafe fn load(path: impl AsRef<Path>, allocate: &str, free: &str) -> Result<Self, SourceError> {
        let path = path.as_ref();
        // SAFETY: 1. is the caller's promise.
        let library = unsafe { open_user_library(path) }?;
        let mut missing = Vec::new();
        // SAFETY: 2. is the caller's promise.
        let found_allocate = unsafe { find(&library, allocate, &mut missing) };
        // SAFETY: 2. is the caller's promise.
        let found_free = unsafe { find(&library, free, &mut missing) };
        let (Some(allocate), Some(free)) = (found_allocate, found_free) else { return Err(lacks(&library, &missing)) };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Ok(Self::new(name, allocate, free))
    }

    /// A source of these functions. Closures receive its events by [`FunctionSource::on_event`].
    ///
    /// # Safety
    ///
    /// 1. The functions keep the promises of [`Source`](cachette::source::Source).
    /// 2. They can be called from any thread, as long as the source lives.
    #[must_use]
    pub unsafe fn into_source(self) -> FunctionSource {
        let Self { name, allocate, free } = self;
        let source_name = name.clone();
        let allocate = move |bytes: u64, context: &AllocContext| {
            let (signed, device) = (signed(bytes), number(context.device)?);
            // SAFETY: 1. and 2. of `into_source`; the stream is live by the promise of `Source::allocate`.
            let ptr = unsafe { allocate(signed, device, stream(context.stream)) };
            not_null(&source_name, address(ptr), bytes, context)
        };
        let free = move |ptr: DevicePtr, bytes: u64, context: &AllocContext| {
            let (signed, device) = (signed(bytes), number(context.device)?);
            // SAFETY: 1. and 2. of `into_source`; the memory is idle by the promise of `Source::free`.
            unsafe { free(pointer(ptr), signed, device, stream(context.stream)) };
            Ok(())
        };
        // SAFETY: 1. 2. 3. the C functions keep them, by promise 1 of `into_source`.
        unsafe { FunctionSource::new(name, allocate, free) }
    }
}

/// Finds a function, and adds to `missing` a name that the library lacks.
///
/// # Safety
///
/// 1. `F` is the type of pointers to the function called `name`.
unsafe fn find<'n, F: Copy>(library: &Library, name: &'n str, missing: &mut Vec<&'n str>) -> Option<F> {
    // SAFETY: 1. is the caller's promise.
    let found = unsafe { library.find::<F>(name) };
    if found.is_none() {
        missing.push(name);
    }
    found
}

fn lacks(library: &Library, missing: &[&str]) -> SourceError {
    SourceError::unavailable(
        format!("{} has no function {}", library.name(), missing.join(", ")),
        "export it with C linkage under this name, or name another",
    )
}

/// The size as C functions take it; [`FunctionSource`] has refused larger ones.
fn signed(bytes: u64) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

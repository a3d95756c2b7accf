//! C functions as the functions of a source.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;

use cachette_hal::load::Library;
use cachette_hal::{DevicePtr, Ordinal};

use super::FunctionSource;
use crate::source::accept::not_null;
use crate::source::c_functions::{CAllocate, CFree, CHooks, CPoolId, EMPTY_FILTER, HookNames};
use crate::source::convert::{address, number, pointer, stream};
use crate::source::library::open_own;
use crate::source::{AllocContext, PoolPair, SourceError};

impl FunctionSource {
    /// A source called `name`, of C functions with the signatures of PyTorch's pluggable allocator.
    ///
    /// # Safety
    ///
    /// 1. The functions keep the promises of [`Source`](crate::source::Source), from any thread.
    /// 2. They stay callable as long as the source lives.
    pub unsafe fn from_c(name: impl Into<String>, allocate: CAllocate, free: CFree) -> Self {
        let name = name.into();
        let caller = name.clone();
        let allocate = move |bytes: u64, place: &AllocContext| {
            let (signed, device) = (signed(bytes), number(place.device)?);
            // SAFETY: 1. and 2. of `from_c`; the stream is live by the promise of `allocate`.
            let made = unsafe { allocate(signed, device, stream(place.stream)) };
            not_null(&caller, address(made), bytes, place)
        };
        let free = move |ptr: DevicePtr, bytes: u64, place: &AllocContext| {
            let (signed, device) = (signed(bytes), number(place.device)?);
            // SAFETY: 1. and 2. of `from_c`; the memory is idle by the promise of `free`.
            unsafe { free(pointer(ptr), signed, device, stream(place.stream)) };
            Ok(())
        };
        // SAFETY: 1. 2. 3. the C functions keep them, by promise 1 of `from_c`.
        unsafe { Self::new(name, allocate, free) }
    }

    /// Adds C functions as hooks.
    ///
    /// # Safety
    ///
    /// 1. The functions can be called from any thread.
    /// 2. They stay callable as long as the source lives.
    #[must_use]
    pub unsafe fn with_c_hooks(mut self, hooks: CHooks) -> Self {
        if let Some(init) = hooks.init {
            self = self.on_start(move |devices| {
                let devices = c_int::try_from(devices).unwrap_or(c_int::MAX);
                // SAFETY: 1. and 2. of `with_c_hooks`.
                unsafe { init(devices) }
            });
        }
        if let Some(reset) = hooks.reset {
            // SAFETY: 1. and 2. of `with_c_hooks`.
            self = self.on_empty(move || unsafe { reset() });
        }
        if let Some(fraction) = hooks.memory_fraction {
            self = self.on_limit(move |share, device| {
                // SAFETY: 1. and 2. of `with_c_hooks`.
                unsafe { fraction(share, told(device)) }
            });
        }
        if let Some(base) = hooks.base_allocation {
            self = self.with_base_allocation(move |ptr| {
                let mut bytes = 0;
                // SAFETY: 1. and 2. of `with_c_hooks`; it writes one size.
                let start = unsafe { base(pointer(ptr), &raw mut bytes) };
                let start = DevicePtr::new(address(start))?;
                Some((start, bytes as u64))
            });
        }
        if let Some(record) = hooks.record_stream {
            self = self.on_record_stream(move |ptr, used_by| {
                // SAFETY: 1. and 2. of `with_c_hooks`; both are live by the promise of `record_stream`.
                unsafe { record(pointer(ptr), stream(used_by)) }
            });
        }
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { self.with_c_pool_hooks(hooks) }
    }

    /// Adds the hooks that are told of pools.
    ///
    /// # Safety
    ///
    /// The promises of [`with_c_hooks`](Self::with_c_hooks).
    unsafe fn with_c_pool_hooks(mut self, hooks: CHooks) -> Self {
        if let Some(begin) = hooks.begin_pool {
            let filter = &raw const EMPTY_FILTER;
            let filter = filter.expose_provenance();
            self = self.on_begin(move |device, pool| {
                let filter = ptr::with_exposed_provenance::<c_void>(filter);
                // SAFETY: 1. and 2. of `with_c_hooks`; the filter lives for ever.
                unsafe { begin(told(device), pair(pool), filter) }
            });
        }
        if let Some(end) = hooks.end_pool {
            self = self.on_end(move |device, pool| {
                // SAFETY: 1. and 2. of `with_c_hooks`.
                unsafe { end(told(device), pair(pool)) }
            });
        }
        if let Some(release) = hooks.release_pool {
            self = self.on_release(move |device, pool| {
                // SAFETY: 1. and 2. of `with_c_hooks`.
                unsafe { release(told(device), pair(pool)) }
            });
        }
        self
    }

    /// A source of two functions in a shared library, called after the library's file.
    ///
    /// A name without a folder is one that the system searches for. The library stays loaded until the process
    /// ends.
    ///
    /// # Safety
    ///
    /// 1. The library's initialisers are sound to run.
    /// 2. The symbols are functions of the types [`CAllocate`] and [`CFree`].
    /// 3. They keep the promises of [`Source`](crate::source::Source), from any thread.
    pub unsafe fn load(path: impl AsRef<Path>, allocate: &str, free: &str) -> Result<Self, SourceError> {
        let path = path.as_ref();
        // SAFETY: 1. is the caller's promise.
        let library = unsafe { open_own(path) }?;
        let mut missing = Vec::new();
        // SAFETY: 2. is the caller's promise.
        let found_allocate = unsafe { find::<CAllocate>(&library, Some(allocate), &mut missing) };
        // SAFETY: 2. is the caller's promise.
        let found_free = unsafe { find::<CFree>(&library, Some(free), &mut missing) };
        let (Some(allocate), Some(free)) = (found_allocate, found_free) else {
            return Err(SourceError::lacks(&library, &missing));
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        // SAFETY: 3. is the caller's promise, and the library is never closed.
        Ok(unsafe { Self::from_c(name, allocate, free) })
    }

    /// Adds functions in a shared library as hooks; every name that is given must be there.
    ///
    /// # Safety
    ///
    /// 1. The library's initialisers are sound to run.
    /// 2. The symbols are functions of the types in [`CHooks`], and can be called from any thread.
    pub unsafe fn load_hooks(self, path: impl AsRef<Path>, names: &HookNames<'_>) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        let library = unsafe { open_own(path.as_ref()) }?;
        let mut missing = Vec::new();
        let hooks = CHooks {
            // SAFETY: 2. is the caller's promise.
            init: unsafe { find(&library, names.init, &mut missing) },
            // SAFETY: 2. is the caller's promise.
            reset: unsafe { find(&library, names.reset, &mut missing) },
            // SAFETY: 2. is the caller's promise.
            memory_fraction: unsafe { find(&library, names.memory_fraction, &mut missing) },
            // SAFETY: 2. is the caller's promise.
            base_allocation: unsafe { find(&library, names.base_allocation, &mut missing) },
            // SAFETY: 2. is the caller's promise.
            record_stream: unsafe { find(&library, names.record_stream, &mut missing) },
            // SAFETY: 2. is the caller's promise.
            begin_pool: unsafe { find(&library, names.begin_pool, &mut missing) },
            // SAFETY: 2. is the caller's promise.
            end_pool: unsafe { find(&library, names.end_pool, &mut missing) },
            // SAFETY: 2. is the caller's promise.
            release_pool: unsafe { find(&library, names.release_pool, &mut missing) },
        };
        if !missing.is_empty() {
            return Err(SourceError::lacks(&library, &missing));
        }
        // SAFETY: 2. is the caller's promise, and the library is never closed.
        Ok(unsafe { self.with_c_hooks(hooks) })
    }
}

/// Finds a function, and notes one that is named and not there.
///
/// # Safety
///
/// 1. `F` is the type of pointers to the function called `name`.
unsafe fn find<'n, F: Copy>(library: &Library, name: Option<&'n str>, missing: &mut Vec<&'n str>) -> Option<F> {
    let name = name?;
    // SAFETY: 1. is the caller's promise.
    let found = unsafe { library.find::<F>(name) };
    if found.is_none() {
        missing.push(name);
    }
    found
}

/// The size as C functions take it; [`FunctionSource`] has refused what does not fit.
fn signed(bytes: u64) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

/// The device's number in a call that cannot fail.
fn told(device: Ordinal) -> c_int {
    number(device).unwrap_or(c_int::MAX)
}

fn pair((first, second): PoolPair) -> CPoolId {
    CPoolId { first, second }
}

//! C functions with the signatures of PyTorch's pluggable allocator, as the functions of a source.

use std::ffi::{c_double, c_int, c_void};
use std::path::Path;

use cachette::source::checks::not_null;
use cachette::source::{AllocContext, FunctionSource, PoolPair, SourceError, SourceEvent};
use cachette_hal::load::Library;
use cachette_hal::{DevicePtr, Ordinal};

use crate::convert::{address, number, pointer, stream};
use crate::library::open_user_library;

/// `void *allocate(ssize_t size, int device, void *stream)`; null means out of memory.
pub type CAllocate = unsafe extern "C" fn(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void;
/// `void free(void *ptr, ssize_t size, int device, void *stream)`.
pub type CFree = unsafe extern "C" fn(ptr: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void);
/// `void init(int device_count)`.
pub type CInit = unsafe extern "C" fn(devices: c_int);
/// `void reset(void)`.
pub type CReset = unsafe extern "C" fn();
/// `void memory_fraction(double fraction, int device)`.
pub type CMemoryFraction = unsafe extern "C" fn(fraction: c_double, device: c_int);
/// `void *base_allocation(void *ptr, size_t *size)`.
pub type CBaseAllocation = unsafe extern "C" fn(ptr: *mut c_void, bytes: *mut usize) -> *mut c_void;
/// `void record_stream(void *ptr, void *stream)`.
pub type CRecordStream = unsafe extern "C" fn(ptr: *mut c_void, stream: *mut c_void);
/// `void begin_allocate_to_pool(int device, struct { uint64_t first, second; } pool, const void *filter)`.
///
/// In PyTorch's signature `filter` is a `std::function<bool(stream)>` by value, which the C++ ABI passes by address.
/// Here it is the address of 64 zero bytes: an empty function, which may be copied and must not be called.
pub type CBeginPool = unsafe extern "C" fn(device: c_int, pool: CPoolId, filter: *const c_void);
/// `void end_allocate_to_pool(int device, struct { uint64_t first, second; } pool)`; also `release_pool`.
pub type CEndPool = unsafe extern "C" fn(device: c_int, pool: CPoolId);

/// A pool's id, laid out as C++'s pair of two 64-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CPoolId {
    /// Not zero for a capture's pool.
    pub first: u64,
    /// Not zero for a user's pool.
    pub second: u64,
}

/// The optional functions of the pluggable allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct CHooks {
    /// An allocator begins to use the functions.
    pub init: Option<CInit>,
    /// The caches were emptied.
    pub reset: Option<CReset>,
    /// The share of a device's memory that may be held was set.
    pub memory_fraction: Option<CMemoryFraction>,
    /// Finds the allocation that contains an address.
    pub base_allocation: Option<CBaseAllocation>,
    /// Another stream uses memory.
    pub record_stream: Option<CRecordStream>,
    /// A pool begins to serve requests.
    pub begin_pool: Option<CBeginPool>,
    /// A pool no longer serves requests.
    pub end_pool: Option<CEndPool>,
    /// The last user has released a pool.
    pub release_pool: Option<CEndPool>,
}

/// The symbols of the functions of [`CHooks`] in a library.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each is the symbol of the function of the same name")]
pub struct HookNames<'n> {
    pub init: Option<&'n str>,
    pub reset: Option<&'n str>,
    pub memory_fraction: Option<&'n str>,
    pub base_allocation: Option<&'n str>,
    pub record_stream: Option<&'n str>,
    pub begin_pool: Option<&'n str>,
    pub end_pool: Option<&'n str>,
    pub release_pool: Option<&'n str>,
}

/// The two functions of a source, and its hooks.
#[derive(Clone, Debug)]
pub struct CFunctions {
    name: String,
    allocate: CAllocate,
    free: CFree,
    hooks: CHooks,
}

impl CFunctions {
    /// The functions of a source called `name`, without hooks.
    pub fn new(name: impl Into<String>, allocate: CAllocate, free: CFree) -> Self {
        Self { name: name.into(), allocate, free, hooks: CHooks::default() }
    }

    /// Sets the hooks.
    #[must_use]
    pub fn with_hooks(self, hooks: CHooks) -> Self {
        Self { hooks, ..self }
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
        let found_allocate = unsafe { find(&library, Some(allocate), &mut missing) };
        // SAFETY: 2. is the caller's promise.
        let found_free = unsafe { find(&library, Some(free), &mut missing) };
        let (Some(allocate), Some(free)) = (found_allocate, found_free) else { return Err(lacks(&library, &missing)) };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Ok(Self::new(name, allocate, free))
    }

    /// Sets functions of a shared library as the hooks; the library must have every name that is given.
    ///
    /// # Safety
    ///
    /// 1. The library's initialisers are sound to run.
    /// 2. The symbols are functions of the types in [`CHooks`].
    pub unsafe fn load_hooks(self, path: impl AsRef<Path>, names: &HookNames<'_>) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        let library = unsafe { open_user_library(path.as_ref()) }?;
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
        if missing.is_empty() { Ok(self.with_hooks(hooks)) } else { Err(lacks(&library, &missing)) }
    }

    /// A source of these functions.
    ///
    /// # Safety
    ///
    /// 1. The functions keep the promises of [`Source`](cachette::source::Source).
    /// 2. They and the hooks can be called from any thread, as long as the source lives.
    #[must_use]
    pub unsafe fn into_source(self) -> FunctionSource {
        let Self { name, allocate, free, hooks } = self;
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
        let source = unsafe { FunctionSource::new(name, allocate, free) };
        let source = source.with_base_allocation(move |ptr| {
            let mut bytes = 0;
            // SAFETY: 2. of `into_source`; it writes one size.
            let start = unsafe { (hooks.base_allocation?)(pointer(ptr), &raw mut bytes) };
            Some((DevicePtr::new(address(start))?, bytes as u64))
        });
        // SAFETY: 1. is the caller's promise 2; 2. `Source::notify` promises it.
        source.on_event(move |event| unsafe { hooks.call(event) })
    }
}

impl CHooks {
    /// Calls the function for an event, if there is one.
    ///
    /// # Safety
    ///
    /// 1. The functions can be called from any thread.
    /// 2. Memory and stream of the event are live.
    unsafe fn call(&self, event: SourceEvent) {
        match event {
            SourceEvent::Started(devices) => {
                let devices = c_int::try_from(devices).unwrap_or(c_int::MAX);
                // SAFETY: 1.
                self.init.inspect(|init| unsafe { init(devices) });
            }
            SourceEvent::Emptied => {
                // SAFETY: 1.
                self.reset.inspect(|reset| unsafe { reset() });
            }
            SourceEvent::Limited(share, device) => {
                // SAFETY: 1.
                self.memory_fraction.inspect(|set| unsafe { set(share, hook_device(device)) });
            }
            SourceEvent::StreamRecorded(ptr, used_by) => {
                // SAFETY: 1. and 2.
                self.record_stream.inspect(|record| unsafe { record(pointer(ptr), stream(used_by)) });
            }
            SourceEvent::Began(device, pool) => {
                let filter = (&raw const EMPTY_FILTER).cast();
                // SAFETY: 1.; the filter is static.
                self.begin_pool.inspect(|begin| unsafe { begin(hook_device(device), pool_id(pool), filter) });
            }
            SourceEvent::Ended(device, pool) => {
                // SAFETY: 1.
                self.end_pool.inspect(|end| unsafe { end(hook_device(device), pool_id(pool)) });
            }
            SourceEvent::Released(device, pool) => {
                // SAFETY: 1.
                self.release_pool.inspect(|release| unsafe { release(hook_device(device), pool_id(pool)) });
            }
            _ => {}
        }
    }
}

/// An empty `std::function` of any C++ library: none is larger, and each is empty when all bytes are zero.
#[derive(Debug)]
#[repr(C, align(16))]
struct EmptyFilter([u8; 64]);

/// The filter of every call of [`CBeginPool`].
static EMPTY_FILTER: EmptyFilter = EmptyFilter([0; 64]);

/// Finds a function, and adds to `missing` a name that the library lacks.
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

/// The error for functions that a library lacks.
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

/// The device's number for a hook, which cannot fail.
fn hook_device(device: Ordinal) -> c_int {
    number(device).unwrap_or(c_int::MAX)
}

fn pool_id((first, second): PoolPair) -> CPoolId {
    CPoolId { first, second }
}

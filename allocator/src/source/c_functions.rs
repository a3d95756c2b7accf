//! The C functions of PyTorch's pluggable allocator, with its optional hooks.

use std::ffi::{c_double, c_int, c_void};

/// `void *allocate(ssize_t size, int device, void *stream)`; null means that there is no memory.
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
/// PyTorch's has a `std::function<bool(stream)>` by value in the place of `filter`, which the C++ ABI passes by its
/// address. Here it is the address of 64 zero bytes: an empty function, which may be copied and never called.
pub type CBeginPool = unsafe extern "C" fn(device: c_int, pool: CPoolId, filter: *const c_void);
/// `void end_allocate_to_pool(int device, struct { uint64_t first, second; } pool)`; also `release_pool`.
pub type CEndPool = unsafe extern "C" fn(device: c_int, pool: CPoolId);

/// A pool's name, laid out as C++'s pair of two 64-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CPoolId {
    /// Not zero for a pool that a capture made.
    pub first: u64,
    /// Not zero for a pool that a user made.
    pub second: u64,
}

/// An empty `std::function`, whatever the C++ library: none is larger, and each is empty when all zero.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct EmptyFilter([u8; 64]);

/// The one that every call is given.
pub(crate) static EMPTY_FILTER: EmptyFilter = EmptyFilter([0; 64]);

/// The optional functions of the pluggable allocator; what is `None` is not called.
#[derive(Clone, Copy, Debug, Default)]
pub struct CHooks {
    /// An allocator begins to use the functions.
    pub init: Option<CInit>,
    /// The caches were emptied.
    pub reset: Option<CReset>,
    /// The share of a device's memory that may be held was set.
    pub memory_fraction: Option<CMemoryFraction>,
    /// The allocation that an address lies in.
    pub base_allocation: Option<CBaseAllocation>,
    /// Another stream uses memory.
    pub record_stream: Option<CRecordStream>,
    /// Requests begin to be served by a pool.
    pub begin_pool: Option<CBeginPool>,
    /// Requests are no longer served by a pool.
    pub end_pool: Option<CEndPool>,
    /// A pool has no user any more.
    pub release_pool: Option<CEndPool>,
}

/// The symbols under which a library has the functions of [`CHooks`]; what is `None` is not looked for.
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

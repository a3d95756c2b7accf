//! Options of pools, and the sources of their segments.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cachette::PoolOptions;
use cachette::evict::Priority;
use cachette::hal::{DeviceInfo, DevicePtr};
use cachette::pool::PoolId;
use cachette::source::{AllocContext, FunctionSource, Source, SourceError};
use cachette_sources::open_named;

use crate::convert::{address_of, handle_of, pointer_to};
use crate::failure::Failure;
use crate::handle::Empty;
use crate::observers::User;
use crate::pool_id::PoolName;
use crate::structure::{Readable, Structure};
use crate::text;

/// A pool flag: blocks are never split, so every allocation has its own segment.
pub const CACHETTE_POOL_NO_SPLIT: u64 = 1;

/// A pool flag: other requests of the same stream may use its free blocks before they fail.
pub const CACHETTE_POOL_USE_ON_OOM: u64 = 2;

/// A pool flag: requests may evict the pool before they fail, while it has no guard; `cachette_pool_make_resident`.
pub const CACHETTE_POOL_EVICTABLE: u64 = 4;

/// A pool flag: the memory behind an address never changes while the pool has users, so that it may be registered with
/// network cards and collective libraries. The pool sleeps only if `before_sleep` agrees.
pub const CACHETTE_POOL_REGISTERED: u64 = 8;

/// Called for a pool; 0 is success, and any other number a failure, which its text names. `user` is `callback_user`.
pub type PoolCallback = Option<unsafe extern "C" fn(user: *mut c_void, pool: PoolName) -> i32>;

/// Allocates a segment of `bytes` bytes on a device, aligned to 512 bytes, for a request of `stream`. NULL means out of
/// memory. The segment stays valid until it is freed. The function may be called from several threads at once. It must
/// not allocate from a pool that has a source.
pub type SourceAllocate =
    Option<unsafe extern "C" fn(user: *mut c_void, bytes: u64, device: u32, stream: *mut c_void) -> *mut c_void>;

/// Frees a segment that is no longer in use. The function may be called from several threads at once.
pub type SourceFree =
    Option<unsafe extern "C" fn(user: *mut c_void, address: *mut c_void, bytes: u64, device: u32, stream: *mut c_void)>;

/// Called once, when the source is no longer needed and `user` can be destroyed.
pub type SourceClose = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Options of a pool. Set all of it to zero first; zero is the default of every field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GivenOptions {
    /// An identifier from `cachette_pool_new_id`; zero for a new one.
    pub id: PoolName,
    /// `CACHETTE_POOL_` constants, or-ed together.
    pub flags: u64,
    /// A built-in source: `"nccl"` or `"nvshmem"` on NVIDIA's devices, `"rccl"` or `"rocshmem"` on AMD's. NULL
    /// allocates segments from the device, or with the functions below. The program initialises NVSHMEM and rocSHMEM
    /// for the same device first.
    pub source: *const c_char,
    /// A source of the program. Either both functions are set or none.
    pub source_allocate: SourceAllocate,
    /// See `source_allocate`.
    pub source_free: SourceFree,
    /// May be NULL. It is not called if the pool could not be created.
    pub source_close: SourceClose,
    /// Passed to the three functions.
    pub source_user: *mut c_void,
    /// Pools with the same tag sleep and wake as one: `cachette_sleep_tagged`. NULL for none.
    pub tag: *const c_char,
    /// For `CACHETTE_POOL_EVICTABLE`: pools of a lower priority are evicted first. At most `UINT32_MAX`.
    pub priority: u64,
    /// For `CACHETTE_POOL_EVICTABLE`: an eviction drops the contents, and this writes them again. It runs inside
    /// `cachette_pool_make_resident`, and must make no pool resident. NULL keeps the contents in host memory.
    pub reload: PoolCallback,
    /// Called before the pool sleeps, to end registrations of its memory. After a failure the pool stays awake.
    pub before_sleep: PoolCallback,
    /// Passed to `reload` and `before_sleep`, which may be called until the pool is gone.
    pub callback_user: *mut c_void,
}

impl Structure for GivenOptions {
    const FIRST_SIZE: usize = 64;
}

// SAFETY: every field is a number, or a pointer or function that may be null.
unsafe impl Readable for GivenOptions {}

/// The allocator's form of the options.
pub(crate) struct Made {
    pub(crate) options: PoolOptions,
    /// To be armed once the pool exists.
    pub(crate) user: Option<Arc<SourceUser>>,
}

impl GivenOptions {
    /// The allocator's form of the options, for a pool on the device that `info` describes.
    ///
    /// # Safety
    ///
    /// Promises 3, 6 and 7 of the crate.
    pub(crate) unsafe fn make(&self, info: &DeviceInfo) -> Result<Made, Failure> {
        let known =
            CACHETTE_POOL_NO_SPLIT | CACHETTE_POOL_USE_ON_OOM | CACHETTE_POOL_EVICTABLE | CACHETTE_POOL_REGISTERED;
        let unknown = self.flags & !known;
        if unknown != 0 {
            return Err(Failure::argument(format!(
                "`flags` has {unknown:#x}, which is not a pool flag; use CACHETTE_POOL_ constants only"
            )));
        }
        let mut options = PoolOptions::new()
            .no_split(self.flags & CACHETTE_POOL_NO_SPLIT != 0)
            .use_on_oom(self.flags & CACHETTE_POOL_USE_ON_OOM != 0)
            .registered(self.flags & CACHETTE_POOL_REGISTERED != 0);
        if self.flags & CACHETTE_POOL_EVICTABLE != 0 {
            let priority = u32::try_from(self.priority);
            let priority =
                priority.map_err(|_| Failure::argument("`priority` is above UINT32_MAX; use a smaller one"))?;
            options = options.evictable(Priority(priority));
        } else if self.priority != 0 || self.reload.is_some() {
            return Err(Failure::argument("`priority` and `reload` need the flag CACHETTE_POOL_EVICTABLE; set it too"));
        }
        if let Some(reload) = self.reload {
            // SAFETY: 6. is the caller's promise.
            options = options.reload(unsafe { callback(reload, "reload", User(self.callback_user)) });
        }
        if let Some(agree) = self.before_sleep {
            // SAFETY: 6. is the caller's promise.
            options = options.before_sleep(unsafe { callback(agree, "before_sleep", User(self.callback_user)) });
        }
        if self.id != PoolName::EMPTY {
            options = options.id(self.id.into());
        }
        // SAFETY: 3. is the caller's promise.
        if let Some(tag) = unsafe { text::optional_text(self.tag, "tag") }? {
            options = options.tag(tag);
        }
        // SAFETY: 3. is the caller's promise.
        let name = unsafe { text::optional_text(self.source, "source") }?;
        let user = match (name, self.source_allocate, self.source_free) {
            (None, None, None) => None,
            (Some(name), None, None) => {
                // SAFETY: 7. is the caller's promise.
                options = options.source(unsafe { open_named(name, info) }?);
                None
            }
            (None, Some(_), Some(_)) => {
                let user = Arc::new(SourceUser::new(self.source_user, self.source_close));
                // SAFETY: 6. is the caller's promise.
                options = options.source(unsafe { self.functions(&user) });
                Some(user)
            }
            _ => {
                return Err(Failure::argument(
                    "a source is `source`, or `source_allocate` and `source_free` together; set one of these",
                ));
            }
        };
        Ok(Made { options, user })
    }

    /// A source that calls the program's functions, which are both set.
    ///
    /// # Safety
    ///
    /// Promise 6 of the crate.
    unsafe fn functions(&self, user: &Arc<SourceUser>) -> Arc<dyn Source> {
        let Self { source_allocate, source_free, .. } = *self;
        let (of_allocate, of_free) = (Arc::clone(user), Arc::clone(user));
        let allocate = move |bytes, place: &AllocContext| {
            let (device, stream) = (place.device, handle_of(place.stream));
            let made = source_allocate.map(|make| {
                // SAFETY: 6. is the promise of the caller who created the pool.
                unsafe { make(of_allocate.pointer, bytes, device.0, stream) }
            });
            made.and_then(|made| DevicePtr::new(address_of(made))).ok_or_else(|| {
                let text = format!("the program's source has no {bytes} bytes for device {device}");
                SourceError::out_of_memory(text)
            })
        };
        let free = move |ptr: DevicePtr, bytes, place: &AllocContext| {
            let (at, stream) = (pointer_to(ptr.address()), handle_of(place.stream));
            if let Some(free) = source_free {
                // SAFETY: 6. is the promise of the caller who created the pool.
                unsafe { free(of_free.pointer, at, bytes, place.device.0, stream) };
            }
            Ok(())
        };
        // SAFETY: 1. 2. 3. the types of the functions require it, and the caller promises it by 6. of the crate.
        Arc::new(unsafe { FunctionSource::new("the program's source", allocate, free) })
    }
}

/// A callback of a pool.
///
/// # Safety
///
/// Promise 6 of the crate, until the closure is dropped.
unsafe fn callback(
    call: unsafe extern "C" fn(*mut c_void, PoolName) -> i32,
    name: &'static str,
    user: User,
) -> impl Fn(PoolId) -> Result<(), String> + Send + Sync {
    move |id| {
        // SAFETY: 6. is the caller's promise.
        match unsafe { call(user.pointer(), id.into()) } {
            0 => Ok(()),
            code => Err(format!("`{name}` returned {code}")),
        }
    }
}

/// The user pointer of a source, and the function to call when the source is dropped.
#[derive(Debug)]
pub(crate) struct SourceUser {
    pointer: *mut c_void,
    close: SourceClose,
    /// Whether the pool was created. Relaxed, since the thread that sets it still holds a reference.
    armed: AtomicBool,
}

// SAFETY: the pointer is only passed on, to functions that may be called from any thread by promise 6.
unsafe impl Send for SourceUser {}
// SAFETY: as above.
unsafe impl Sync for SourceUser {}

impl SourceUser {
    const fn new(pointer: *mut c_void, close: SourceClose) -> Self {
        Self { pointer, close, armed: AtomicBool::new(false) }
    }

    /// Enables the call of `close` on drop.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }
}

impl Drop for SourceUser {
    fn drop(&mut self) {
        if self.armed.load(Ordering::Relaxed)
            && let Some(close) = self.close
        {
            // SAFETY: 6. is the promise of the caller who created the pool.
            unsafe { close(self.pointer) };
        }
    }
}

//! Which requests a pool serves: those of a thread that has entered it, or those of a route.

use std::ffi::c_void;
use std::num::NonZeroU64;
use std::ptr;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use cachette::Pool;
use cachette::hal::{AnyDevice, CaptureId};
use cachette::pool::{Filter, PoolGuard};

use crate::convert::stream_of;
use crate::failure::Failure;
use crate::given::{any_handle, give, handle, out, take};
use crate::guard::guard;
use crate::pool::PoolHandle;
use crate::status::Status;

/// A thread inside a pool.
// The fields are dropped in this order: the guard borrows the pool.
#[derive(Debug)]
pub struct InsideHandle {
    _guard: PoolGuard<'static, AnyDevice>,
    _pool: Arc<Pool<AnyDevice>>,
    thread: ThreadId,
}

impl InsideHandle {
    fn new(
        pool: &Arc<Pool<AnyDevice>>,
        enter: impl FnOnce(&'static Pool<AnyDevice>) -> Result<PoolGuard<'static, AnyDevice>, Failure>,
    ) -> Result<Self, Failure> {
        let pool = Arc::clone(pool);
        // SAFETY: the pool lives as long as the handle has a share in it, and the guard is dropped before that.
        let shared: &'static Pool<AnyDevice> = unsafe { &*Arc::as_ptr(&pool) };
        Ok(Self { _guard: enter(shared)?, _pool: pool, thread: thread::current().id() })
    }
}

/// Leads this thread's requests for a stream to the pool until `cachette_pool_leave`. The pool entered last serves.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_enter(
    pool: *mut PoolHandle,
    stream: *mut c_void,
    out_inside: *mut *mut InsideHandle,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_inside, ptr::null_mut(), "out_inside") }?;
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { pool.stream(stream) }?;
        let enter = |pool: &'static Pool<AnyDevice>| Ok(pool.enter(&stream)?);
        *out = give(InsideHandle::new(&pool.inner, enter)?);
        Ok(())
    })
}

/// Leads this thread's requests for every stream to the pool until `cachette_pool_leave`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_enter_all(pool: *mut PoolHandle, out_inside: *mut *mut InsideHandle) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_inside, ptr::null_mut(), "out_inside") }?;
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        *out = give(InsideHandle::new(&pool.inner, |pool| Ok(pool.enter_all()))?);
        Ok(())
    })
}

/// Leaves a pool, on the thread that has entered it and before that thread ends. Several may be left in any order.
/// NULL is nothing.
///
/// On another thread it is `CACHETTE_ERROR_INVALID_ARGUMENT`, and changes nothing.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_leave(inside: *mut InsideHandle) -> Status {
    guard(|| {
        if inside.is_null() {
            return Ok(());
        }
        // SAFETY: 1. is the caller's promise.
        let of = unsafe { any_handle(inside, "inside") }?.thread;
        if of != thread::current().id() {
            let text = "another thread has entered the pool; leave it on that one";
            return Err(Failure::argument(text));
        }
        // SAFETY: 1. is the caller's promise.
        drop(unsafe { take(inside) });
        Ok(())
    })
}

/// Leads requests of every thread to the pool until `cachette_pool_end_route`. A pool has one route at most.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_route_all(pool: *mut PoolHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    guard(|| begin(unsafe { handle(pool, "pool") }?, Filter::All))
}

/// Leads requests of every thread for a stream to the pool until `cachette_pool_end_route`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_route_stream(pool: *mut PoolHandle, stream: *mut c_void) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        begin(pool, Filter::Stream(stream_of(stream)))
    })
}

/// Leads requests for all streams that take part in a capture to the pool until `cachette_pool_end_route`. The capture
/// is known by its number: see `cachette_stream_capture_id`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_route_capture(pool: *mut PoolHandle, capture_id: u64) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        let id = NonZeroU64::new(capture_id)
            .ok_or_else(|| Failure::argument("no capture has the number 0; begin one, and ask for its number"))?;
        begin(pool, Filter::Capture(CaptureId(id)))
    })
}

/// Leads no more requests to the pool, but for those of threads that have entered it.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_end_route(pool: *mut PoolHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let pool = &unsafe { handle(pool, "pool") }?.inner;
        Ok(pool.allocator().end_allocate_to_pool(pool.id())?)
    })
}

fn begin(pool: &PoolHandle, filter: Filter) -> Result<(), Failure> {
    let pool = &pool.inner;
    Ok(pool.allocator().begin_allocate_to_pool(pool.id(), filter)?)
}

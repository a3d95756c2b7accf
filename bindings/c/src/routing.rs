//! Routing of requests to a pool, for a thread or for all threads.

use std::ffi::c_void;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use cachette::Pool;
use cachette::hal::AnyDevice;
use cachette::pool::{Filter, PoolGuard};

use crate::convert::stream_of;
use crate::failure::Failure;
use crate::guard::{call, guard, promises};
use crate::handle::{destroy, into_handle};
use crate::pool::PoolHandle;
use crate::status::Status;

/// A thread's stay in a pool.
// The fields are dropped in this order: the guard borrows the pool.
#[derive(Debug)]
pub struct InsideHandle {
    _guard: PoolGuard<'static, AnyDevice>,
    _pool: Arc<Pool>,
    thread: ThreadId,
}

impl InsideHandle {
    fn new(
        pool: &Arc<Pool>,
        enter: impl FnOnce(&'static Pool) -> Result<PoolGuard<'static, AnyDevice>, Failure>,
    ) -> Result<Self, Failure> {
        let pool = Arc::clone(pool);
        // SAFETY: the pool lives as long as the handle has a share in it, and the guard is dropped before that.
        let shared: &'static Pool = unsafe { &*Arc::as_ptr(&pool) };
        Ok(Self { _guard: enter(shared)?, _pool: pool, thread: thread::current().id() })
    }
}

/// Routes this thread's requests for a stream to the pool until `cachette_pool_leave`. The pool entered last wins.
#[doc = promises!("1, 2 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_enter(
    pool: *mut PoolHandle,
    stream: *mut c_void,
    out_inside: *mut *mut InsideHandle,
) -> Status {
    call!([out(out_inside), handle(pool)], {
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { pool.stream(stream) }?;
        let enter = |pool: &'static Pool| Ok(pool.enter(&stream)?);
        *out_inside = into_handle(InsideHandle::new(&pool.inner, enter)?);
    })
}

/// Routes this thread's requests for every stream to the pool until `cachette_pool_leave`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_enter_all(pool: *mut PoolHandle, out_inside: *mut *mut InsideHandle) -> Status {
    call!(
        [out(out_inside), handle(pool)],
        *out_inside = into_handle(InsideHandle::new(&pool.inner, |pool| Ok(pool.enter_all()))?)
    )
}

/// Leaves a pool, on the thread that entered it and before that thread ends. Several may be left in any order. NULL is
/// ignored.
///
/// On another thread it returns `CACHETTE_ERROR_INVALID_ARGUMENT`, and changes nothing.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_leave(inside: *mut InsideHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    if unsafe { inside.as_ref() }.is_some_and(|inside| inside.thread != thread::current().id()) {
        return guard(|| Err(Failure::argument("another thread entered the pool; leave it on that thread")));
    }
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(inside) }
}

/// Routes the requests of every thread to the pool until `cachette_pool_end_route`. A pool has at most one route.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_route_all(pool: *mut PoolHandle) -> Status {
    call!([handle(pool)], begin(pool, Filter::All)?)
}

/// Routes the requests of every thread for a stream to the pool until `cachette_pool_end_route`.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_route_stream(pool: *mut PoolHandle, stream: *mut c_void) -> Status {
    call!([handle(pool)], begin(pool, Filter::Stream(stream_of(stream)))?)
}

/// Ends the route. Threads that entered the pool still use it.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_end_route(pool: *mut PoolHandle) -> Status {
    call!([handle(pool)], pool.inner.allocator().end_allocate_to_pool(pool.inner.id())?)
}

fn begin(pool: &PoolHandle, filter: Filter) -> Result<(), Failure> {
    let pool = &pool.inner;
    Ok(pool.allocator().begin_allocate_to_pool(pool.id(), filter)?)
}

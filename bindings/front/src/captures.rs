//! A pool for each captured graph.
//!
//! A graph contains addresses, so memory that a captured stream allocates belongs to the graph until the graph is gone.
//! It comes from a pool for that capture. The graph holds a user object, which the driver destroys with the graph and
//! everything made from it; then the pool is released. Memory that the program has not freed by then stays its own.
//! With a driver that has no user objects the pool is kept.

use std::ffi::c_void;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cachette::Pool;
use cachette::hal::{AnyDevice, CaptureStatus, Device, StreamRef};
use cachette::pool::Filter;

use crate::served::Served;
use crate::status::{Refusal, Status};

/// What the driver calls when a user object is gone.
pub(crate) type Destructor = unsafe extern "C" fn(*mut c_void);

/// Flags of the driver: it does not wait for the destructor, and the graph takes the caller's reference.
pub(crate) const NO_SYNC: u32 = 1;
pub(crate) const MOVE: u32 = 1;

/// A capture under way.
#[derive(Debug)]
struct Begun {
    served: &'static Served,
    stream: StreamRef,
    pool: Pool<AnyDevice>,
}

static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());
/// The pools whose graphs are gone. A destructor must not call the driver, so the next request releases them.
static ENDED: Mutex<Vec<Pool<AnyDevice>>> = Mutex::new(Vec::new());
/// Whether there are any. Relaxed: a request that misses one releases it later.
static ANY_ENDED: AtomicBool = AtomicBool::new(false);

/// Leads the requests of a capture that has just begun to a pool.
///
/// # Safety
///
/// 1. `stream` is a live stream of the device.
pub(crate) unsafe fn begin(served: &'static Served, stream: StreamRef) -> Result<(), Refusal> {
    let capture = served.allocator.device().capture().map_err(cachette::Error::from)?;
    // SAFETY: 1. is the caller's promise.
    let CaptureStatus::Active(id) = unsafe { capture.capture_status(stream) }? else { return Ok(()) };
    let pool = served.allocator.create_capture_pool();
    pool.keep();
    served.allocator.begin_allocate_to_pool(pool.id(), Filter::Capture(id))?;
    locked(&BEGUN).push(Begun { served, stream, pool });
    Ok(())
}

/// Ends the route of the capture that `stream` began, if it is over; the pool, if the graph uses it.
pub(crate) fn end(stream: StreamRef) -> Option<Pool<AnyDevice>> {
    let mut all = locked(&BEGUN);
    let at = all.iter().position(|begun| begun.stream == stream)?;
    let capture = all[at].served.allocator.device().capture().ok()?;
    // SAFETY: 1. the caller has just ended the capture of this stream.
    if let Ok(CaptureStatus::Active(_)) = unsafe { capture.capture_status(stream) } {
        return None;
    }
    let Begun { served, pool, .. } = all.swap_remove(at);
    drop(all);
    // It fails only if the route is gone.
    let _ = served.allocator.end_allocate_to_pool(pool.id());
    (pool.stats().reserved_bytes > 0).then_some(pool)
}

/// Keeps a pool until the driver calls the destructor that `attach` is given; for good if it cannot.
pub(crate) fn keep(pool: Pool<AnyDevice>, attach: impl FnOnce(*mut c_void, Destructor) -> Status) {
    let pool = Box::into_raw(Box::new(pool));
    // What the driver refuses to attach is kept: the graph may use the memory as long as the process lives.
    let _ = attach(pool.cast(), graph_is_gone);
}

/// Notes that a graph is gone.
///
/// # Safety
///
/// 1. `pool` is what [`keep`] has attached to the graph.
unsafe extern "C" fn graph_is_gone(pool: *mut c_void) {
    // SAFETY: 1. it came from a box, and the driver calls this once.
    let pool = unsafe { Box::from_raw(pool.cast::<Pool<AnyDevice>>()) };
    locked(&ENDED).push(*pool);
    ANY_ENDED.store(true, Relaxed);
}

/// Releases the pools whose graphs are gone.
#[inline]
pub(crate) fn release_ended() {
    if ANY_ENDED.load(Relaxed) {
        release();
    }
}

#[cold]
fn release() {
    ANY_ENDED.store(false, Relaxed);
    // The driver destroys an object after the last launch of its graph, so no work uses the memory.
    let ended = mem::take(&mut *locked(&ENDED));
    drop(ended);
}

fn locked<T>(list: &'static Mutex<T>) -> MutexGuard<'static, T> {
    // Each change is one step, so a panic leaves it whole.
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

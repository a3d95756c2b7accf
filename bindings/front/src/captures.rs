//! A pool for each captured graph.
//!
//! A graph contains addresses, so memory that a captured stream allocates belongs to the graph until the graph is gone.
//! It comes from a pool for that capture. The graph holds a user object, which the driver destroys with the graph and
//! everything made from it; then the pool is released. Memory that the program has not freed by then stays its own.
//! With a driver that has no user objects the pool is kept.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use cachette::Pool;
use cachette::hal::{CaptureStatus, Device, StreamRef};
use cachette::pool::Filter;

use crate::served::{self, Served};
use crate::status::{Refusal, SUCCESS, Status, UNKNOWN};

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
    pool: Pool,
}

static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());
/// The pools whose graphs are gone. A destructor must not call the driver, so the next request releases them.
static ENDED: Mutex<Vec<Pool>> = Mutex::new(Vec::new());
/// Whether there are any. Relaxed: a request that misses one releases it later.
static ANY_ENDED: AtomicBool = AtomicBool::new(false);

/// Begins a capture by `start`, and leads its requests to a pool. After a failure the capture is ended by `stop`, and its
/// graph destroyed by `discard`: the program must not go on with a capture whose memory could be reused.
///
/// # Safety
///
/// 1. `stream` is a live stream of the device.
pub(crate) unsafe fn begin_by(
    served: &'static Served,
    stream: StreamRef,
    start: impl FnOnce() -> Status,
    stop: impl FnOnce(*mut *mut c_void) -> Status,
    discard: impl FnOnce(*mut c_void) -> Status,
) -> Result<(), Refusal> {
    let status = start();
    if status != SUCCESS {
        return Err(Refusal::Status(status));
    }
    // SAFETY: 1. is the caller's promise.
    unsafe { begin(served, stream) }.map_err(|refusal| {
        let mut graph = ptr::null_mut();
        if stop(&raw mut graph) == SUCCESS {
            let _ = discard(graph);
        }
        // The call is over, so the driver cannot answer it.
        if refusal == Refusal::Driver { Refusal::Status(UNKNOWN) } else { refusal }
    })
}

/// Ends a capture by `stop`, and ties its pool to the graph: `create` makes a user object of a pool, its destructor and
/// the flags, and `retain` gives it to the graph.
///
/// # Safety
///
/// 1. `graph` is null or valid for reading and writing.
pub(crate) unsafe fn end_by(
    stream: StreamRef,
    graph: *mut *mut c_void,
    stop: impl FnOnce() -> Status,
    create: impl FnOnce(*mut *mut c_void, *mut c_void, Destructor) -> Status,
    retain: impl FnOnce(*mut c_void, *mut c_void) -> Status,
) -> Result<(), Refusal> {
    let status = stop();
    if let Some(pool) = end(stream)
        && status == SUCCESS
        && !graph.is_null()
    {
        // SAFETY: it is not null, and otherwise promise 1.
        let graph = unsafe { graph.read() };
        keep(pool, |pool, gone| {
            let mut object = ptr::null_mut();
            match create(&raw mut object, pool, gone) {
                SUCCESS => retain(graph, object),
                status => status,
            }
        });
    }
    if status == SUCCESS { Ok(()) } else { Err(Refusal::Status(status)) }
}

/// Leads the requests of a capture that has just begun to a pool.
///
/// # Safety
///
/// 1. `stream` is a live stream of the device.
unsafe fn begin(served: &'static Served, stream: StreamRef) -> Result<(), Refusal> {
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
fn end(stream: StreamRef) -> Option<Pool> {
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
fn keep(pool: Pool, attach: impl FnOnce(*mut c_void, Destructor) -> Status) {
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
    let pool = unsafe { Box::from_raw(pool.cast::<Pool>()) };
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
    for pool in ended {
        if served::is_reset(pool.allocator().device_info().ordinal.0) {
            abandon(pool);
        }
    }
}

/// Forgets the captures of a device, which a reset ends.
pub(crate) fn forget(device: u32) {
    let ended: Vec<_> = locked(&BEGUN).extract_if(.., |begun| begun.served.device == device).collect();
    for Begun { pool, .. } in ended {
        abandon(pool);
    }
}

/// Keeps a pool of a device that was reset for good. The driver may give its addresses to the program, so nothing there
/// is freed.
fn abandon(pool: Pool) {
    Box::leak(Box::new(pool));
}

fn locked<T>(list: &'static Mutex<T>) -> MutexGuard<'static, T> {
    // Each change is one step, so a panic leaves it whole.
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

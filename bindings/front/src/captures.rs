//! A pool for each captured graph.
//!
//! A graph contains addresses, so memory that a captured stream allocates belongs to the graph until the graph is gone.
//! It comes from a pool for that capture. The graph holds a user object, which the driver destroys with the graph and
//! everything made from it. Then the pool serves the next capture of the same stream. Its memory is freed where the
//! program waits for the device anyway, or when memory is short: a free may wait for the device, and a stream-ordered
//! call must not. Memory that the program has not freed by then stays its own. With a driver that has no user objects
//! the pool is kept.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{mem, ptr};

use cachette::Pool;
use cachette::hal::{CaptureId, CaptureStatus, Device, Guarded, StreamRef};
use cachette::pool::Filter;

use crate::served::{self, Served};
use crate::status::{CAPTURE_BROKEN, CAPTURE_UNJOINED, Refusal, SUCCESS, Status, UNKNOWN};

/// What the driver calls when a user object is gone.
pub(crate) type Destructor = unsafe extern "C" fn(*mut c_void);

/// Flags of the driver: it does not wait for the destructor, and the graph takes the caller's reference.
pub(crate) const NO_SYNC: u32 = 1;
pub(crate) const MOVE: u32 = 1;
/// The mode of a thread whose calls break no capture.
pub(crate) const RELAXED: u32 = 2;

/// A capture under way.
#[derive(Debug)]
struct Begun {
    served: &'static Served,
    stream: StreamRef,
    id: CaptureId,
    pool: Pool,
}

/// A pool whose capture is over, with the stream that was captured.
#[derive(Debug)]
struct Ended {
    stream: StreamRef,
    pool: Pool,
    /// What the capture allocated and did not free. The program may free it after every launch.
    unfreed: Vec<u64>,
}

static BEGUN: Guarded<Vec<Begun>> = Guarded::new(Vec::new());
/// How many there are. Relaxed: a program orders the begin of a capture and the calls in it.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// The pools whose graphs are gone, which no work uses.
static ENDED: Guarded<Vec<Ended>> = Guarded::new(Vec::new());
/// The memory that live graphs allocate and do not free.
static UNFREED: Guarded<BTreeSet<u64>> = Guarded::new(BTreeSet::new());
/// Streams on which the driver has left a capture that ended without a graph.
static LEFT: Guarded<BTreeSet<usize>> = Guarded::new(BTreeSet::new());

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
    if let Some(ended) = end(stream, status) {
        if status == SUCCESS && !graph.is_null() {
            // SAFETY: it is not null, and otherwise promise 1.
            let graph = unsafe { graph.read() };
            keep(ended, |ended, gone| {
                let mut object = ptr::null_mut();
                match create(&raw mut object, ended, gone) {
                    SUCCESS => retain(graph, object),
                    status => status,
                }
            });
        } else {
            ENDED.lock().push(ended);
        }
    }
    if status == SUCCESS { Ok(()) } else { Err(Refusal::Status(status)) }
}

/// Ends the capture of a stream that the program destroys, by `stop`, and destroys its graph by `discard`. Returns
/// whether the driver may have left the capture on the stream.
pub(crate) fn cancel(
    stream: StreamRef,
    stop: impl FnOnce(*mut *mut c_void) -> Status,
    discard: impl FnOnce(*mut c_void) -> Status,
) -> bool {
    let is_left = LEFT.lock().remove(&stream.raw());
    let Some(begun) = take(|begun| begun.stream == stream) else { return is_left };
    let mut graph = ptr::null_mut();
    if stop(&raw mut graph) == SUCCESS {
        let _ = discard(graph);
    }
    ENDED.lock().extend(begun.end());
    true
}

/// Forgets the capture of a stream that the driver destroys.
pub(crate) fn stream_ends(stream: StreamRef, refusal: Refusal) {
    if refusal == Refusal::Driver {
        cancel(stream, |_| UNKNOWN, |_| SUCCESS);
    }
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
    // One of an earlier stream with this handle cannot be under way.
    ENDED.lock().extend(take(|begun| begun.stream == stream).and_then(Begun::end));
    LEFT.lock().remove(&stream.raw());
    let pool = reuse(served, stream).unwrap_or_else(|| {
        let pool = served.allocator.create_capture_pool();
        pool.keep();
        pool
    });
    served.allocator.begin_allocate_to_pool(pool.id(), Filter::Capture(id))?;
    BEGUN.lock().push(Begun { served, stream, id, pool });
    UNDER_WAY.fetch_add(1, Relaxed);
    Ok(())
}

/// Ends the route of the capture that `stream` began, if it is over after an end with `status`.
fn end(stream: StreamRef, status: Status) -> Option<Ended> {
    let served = BEGUN.lock().iter().find(|begun| begun.stream == stream)?.served;
    let capture = served.allocator.device().capture().ok()?;
    // SAFETY: 1. the caller has just ended the capture of this stream.
    let now = unsafe { capture.capture_status(stream) };
    // HIP leaves a capture that ended without a graph on the stream.
    let is_over = matches!(status, SUCCESS | CAPTURE_BROKEN | CAPTURE_UNJOINED);
    if is_over && now != Ok(CaptureStatus::Idle) {
        LEFT.lock().insert(stream.raw());
    }
    if !is_over && matches!(now, Ok(CaptureStatus::Active(_))) {
        return None;
    }
    take(|begun| begun.stream == stream)?.end()
}

impl Begun {
    /// Ends the route to the pool; the pool, if it has memory.
    fn end(self) -> Option<Ended> {
        let Self { served, stream, pool, .. } = self;
        // It fails only if the route is gone.
        let _ = served.allocator.end_allocate_to_pool(pool.id());
        let unfreed = pool.live_allocations();
        (pool.stats().reserved_bytes > 0).then_some(Ended { stream, pool, unfreed })
    }
}

/// Takes a capture out of those under way.
fn take(is_it: impl Fn(&Begun) -> bool) -> Option<Begun> {
    let mut all = BEGUN.lock();
    let at = all.iter().position(is_it)?;
    UNDER_WAY.fetch_sub(1, Relaxed);
    Some(all.swap_remove(at))
}

/// A pool of an earlier capture of the same stream.
fn reuse(served: &Served, stream: StreamRef) -> Option<Pool> {
    let mut all = ENDED.lock();
    let is_it = |ended: &Ended| ended.stream == stream && device_of(&ended.pool) == served.device;
    let at = all.iter().position(is_it)?;
    Some(all.swap_remove(at).pool)
}

/// Whether `stream` is in a capture whose requests a pool serves.
#[inline]
pub(crate) fn serves(served: &Served, stream: StreamRef) -> bool {
    UNDER_WAY.load(Relaxed) > 0 && serves_now(served, stream)
}

#[cold]
fn serves_now(served: &Served, stream: StreamRef) -> bool {
    let Ok(capture) = served.allocator.device().capture() else { return false };
    // SAFETY: 1. it is a stream of the caller.
    let Ok(CaptureStatus::Active(now)) = (unsafe { capture.capture_status(stream) }) else { return false };
    BEGUN.lock().iter().any(|begun| begun.id == now)
}

/// Whether a live graph allocates the memory at an address and does not free it.
pub(crate) fn is_left_to_free(address: u64) -> bool {
    UNFREED.lock().contains(&address)
}

/// Keeps a pool until the driver calls the destructor that `attach` is given; for good if it cannot.
fn keep(ended: Ended, attach: impl FnOnce(*mut c_void, Destructor) -> Status) {
    UNFREED.lock().extend(&ended.unfreed);
    let ended = Box::into_raw(Box::new(ended));
    // What the driver refuses to attach is kept: the graph may use the memory as long as the process lives.
    let _ = attach(ended.cast(), graph_is_gone);
}

/// Notes that a graph is gone. The driver destroys an object after the last launch of its graph, so no work uses the
/// memory. A destructor must not call the driver.
///
/// # Safety
///
/// 1. `ended` is what [`keep`] has attached to the graph.
unsafe extern "C" fn graph_is_gone(ended: *mut c_void) {
    // SAFETY: 1. it came from a box, and the driver calls this once.
    let ended = unsafe { Box::from_raw(ended.cast::<Ended>()) };
    let mut unfreed = UNFREED.lock();
    for address in &ended.unfreed {
        unfreed.remove(address);
    }
    drop(unfreed);
    ENDED.lock().push(*ended);
}

/// Frees the memory of graphs that are gone, which may wait for the device. Returns whether there was any.
#[cold]
pub(crate) fn release_ended() -> bool {
    // The memory of a captured stream cannot be freed.
    let is_free = |ended: &mut Ended| {
        let capture = ended.pool.allocator().device().capture();
        // SAFETY: 1. the front keeps the streams that have memory.
        capture.is_ok_and(|capture| unsafe { capture.capture_status(ended.stream) } == Ok(CaptureStatus::Idle))
    };
    let mut ended = mem::take(&mut *ENDED.lock());
    let released: Vec<_> = ended.extract_if(.., is_free).collect();
    ENDED.lock().extend(ended);
    let any = !released.is_empty();
    for Ended { pool, .. } in released {
        if served::is_reset(device_of(&pool)) {
            abandon(pool);
        }
    }
    any
}

/// Forgets the captures of a device, which a reset ends.
pub(crate) fn forget(device: u32) {
    while let Some(begun) = take(|begun| begun.served.device == device) {
        abandon(begun.pool);
    }
}

/// Keeps a pool of a device that was reset for good. The driver may give its addresses to the program, so nothing there
/// is freed.
fn abandon(pool: Pool) {
    Box::leak(Box::new(pool));
}

fn device_of(pool: &Pool) -> u32 {
    pool.allocator().device_info().ordinal.0
}

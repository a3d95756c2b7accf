//! Streams that the program destroyed, kept for their memory.
//!
//! Cached memory belongs to a stream: Cachette records events there before another stream may use it. A destroyed
//! stream would leave its memory without an order, and some drivers crash at its handle. So the front keeps the stream
//! of a served device instead of destroying it. The next stream that the program creates with the same properties is
//! that one, with its memory, if its work is over: work of the former owner may wait for the new one.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::Allocator;
use cachette::hal::{Guarded, StreamRef};
use cachette_process as process;

use crate::served;
use crate::status::{Refusal, SUCCESS, Status};

/// The device of a stream, its flags and its priority. A CUDA stream is of the device's primary context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) device: u32,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

#[derive(Debug)]
struct Streams {
    /// The streams that the program has.
    live: BTreeMap<usize, Kind>,
    /// The streams that it destroyed, in that order.
    kept: BTreeMap<Kind, VecDeque<usize>>,
    /// The same without their order, and one that a thread tries to give out again.
    gone: BTreeMap<usize, Kind>,
}

static STREAMS: Guarded<Streams> =
    Guarded::new(Streams { live: BTreeMap::new(), kept: BTreeMap::new(), gone: BTreeMap::new() });

/// The number of streams that the program has destroyed. A handle may have another meaning since then. Relaxed: a
/// program orders the end of a stream and the next use of its handle.
static DESTROYED: AtomicU64 = AtomicU64::new(0);

/// The number of streams that the program has destroyed.
#[inline]
pub(crate) fn destroyed() -> u64 {
    DESTROYED.load(Relaxed)
}

/// Whether the program has destroyed a stream, which is kept.
pub(crate) fn is_gone(stream: StreamRef) -> bool {
    STREAMS.lock().gone.contains_key(&stream.raw())
}

/// Creates a stream by `create`, or gives a kept one of this kind whose work is over, which `is_idle` asks.
///
/// # Safety
///
/// 1. `stream` is valid for writing, and `create` writes it.
pub(crate) unsafe fn create(
    stream: *mut *mut c_void,
    kind: Kind,
    is_idle: impl FnOnce(*mut c_void) -> bool,
    create: impl FnOnce() -> Status,
) -> Result<(), Refusal> {
    if let Some(kept) = reuse(kind, is_idle) {
        // SAFETY: 1. is the caller's promise.
        unsafe { stream.write(kept) };
        return Ok(());
    }
    match create() {
        SUCCESS => {
            // SAFETY: 1. the driver has written it.
            let made = unsafe { stream.read() };
            STREAMS.lock().live.insert(made.expose_provenance(), kind);
            Ok(())
        }
        status => Err(Refusal::Status(status)),
    }
}

/// Keeps a stream that the program destroys, after its capture is ended by `end_capture`. The driver destroys it if no
/// device is served, if its device was reset, or if the front did not see it made and Cachette has no memory of it.
pub(crate) fn destroy(stream: *mut c_void, end_capture: impl FnOnce()) -> Result<(), Refusal> {
    let handle = stream.addr();
    if STREAMS.lock().gone.contains_key(&handle) {
        return Err(Refusal::Stream);
    }
    DESTROYED.fetch_add(1, Relaxed);
    let kind = STREAMS.lock().live.remove(&handle);
    let is_kept = |kind: &Kind| served::any_open() && !served::is_reset(kind.device);
    if let Some(kind) = kind.filter(is_kept) {
        end_capture();
        keep(handle, kind);
    } else if let Some(kind) = unknown_kind(StreamRef::from_raw(handle)) {
        end_capture();
        STREAMS.lock().gone.insert(handle, kind);
    } else {
        return Err(Refusal::Driver);
    }
    Ok(())
}

/// The kind of a stream that was made by a call which the front does not answer, if Cachette has memory of the stream.
/// It is kept for good: no call gives it out again.
fn unknown_kind(stream: StreamRef) -> Option<Kind> {
    let mut devices = process::opened().filter(|(device, _)| !served::is_reset(*device));
    let has_it = |allocator: &Allocator| stream != StreamRef::DEFAULT && allocator.has_stream(stream);
    let (device, _) = devices.find(|(_, allocator)| has_it(allocator))?;
    Some(Kind { device, flags: u32::MAX, priority: 0 })
}

/// One try, with the stream that was destroyed first: its work is the most likely to be over.
fn reuse(kind: Kind, is_idle: impl FnOnce(*mut c_void) -> bool) -> Option<*mut c_void> {
    let handle = STREAMS.lock().kept.get_mut(&kind)?.pop_front()?;
    let stream = ptr::with_exposed_provenance_mut(handle);
    // No lock is held: other threads may create and destroy streams meanwhile.
    let is_idle = is_idle(stream);
    let mut streams = STREAMS.lock();
    // A reset may have destroyed it.
    if !streams.gone.contains_key(&handle) {
        return None;
    }
    if !is_idle {
        streams.kept.entry(kind).or_default().push_back(handle);
        return None;
    }
    streams.gone.remove(&handle);
    streams.live.insert(handle, kind);
    Some(stream)
}

fn keep(handle: usize, kind: Kind) {
    let mut streams = STREAMS.lock();
    streams.kept.entry(kind).or_default().push_back(handle);
    streams.gone.insert(handle, kind);
}

/// Forgets the streams of a device, which a reset destroys.
pub(crate) fn forget(device: u32) {
    let Streams { live, kept, gone } = &mut *STREAMS.lock();
    live.retain(|_, kind| kind.device != device);
    kept.retain(|kind, _| kind.device != device);
    gone.retain(|_, kind| kind.device != device);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_had_again_by_the_next_of_its_kind_when_its_work_is_over() {
        let kind = Kind { device: 7, flags: 1, priority: 0 };
        let again = |kind, is_idle| reuse(kind, |_| is_idle).map(<*mut c_void>::addr);
        for handle in [0xa, 0xb] {
            keep(handle, kind);
            assert!(is_gone(StreamRef::from_raw(handle)));
        }
        assert_eq!(again(Kind { flags: 0, ..kind }, true), None);
        assert_eq!(again(kind, false), None, "the first has work");
        assert_eq!(again(kind, true), Some(0xb), "it is the next one's turn");
        assert!(!is_gone(StreamRef::from_raw(0xb)) && is_gone(StreamRef::from_raw(0xa)));
        assert_eq!([again(kind, true), again(kind, true)], [Some(0xa), None]);
        keep(0xa, kind);
        let reset_meanwhile = reuse(kind, |_| {
            forget(kind.device);
            true
        });
        assert_eq!(reset_meanwhile, None);
        let elsewhere = Kind { device: 8, ..kind };
        for (handle, kind) in [(0xc, elsewhere), (0xd, elsewhere), (0xa, kind)] {
            keep(handle, kind);
        }
        assert_eq!(again(elsewhere, true), Some(0xc));
        forget(kind.device);
        assert_eq!(again(kind, true), None, "a reset destroyed it");
        let live = |handle| STREAMS.lock().live.get(&handle).copied();
        assert_eq!((live(0xb), live(0xc)), (None, Some(elsewhere)));
        assert_eq!(again(elsewhere, true), Some(0xd), "the other device has its streams");
    }
}

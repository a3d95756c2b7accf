//! Streams that the program destroyed, kept for their memory.
//!
//! Cached memory belongs to a stream: Cachette records events there before another stream may use it. A destroyed
//! stream would leave its memory without an order. So the front keeps the stream of a served device instead of
//! destroying it. The next stream that the program creates with the same properties is that one, with its memory. Work
//! of the former owner comes first, which costs order but no correctness.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// The streams that it destroyed.
    kept: BTreeMap<Kind, Vec<usize>>,
}

static STREAMS: Mutex<Streams> = Mutex::new(Streams { live: BTreeMap::new(), kept: BTreeMap::new() });

/// The number of streams that went to the driver to be destroyed. Another stream may get the handle of such a one.
/// Relaxed: a program orders the end of a stream and the next use of its handle.
static DESTROYED: AtomicU64 = AtomicU64::new(0);

/// The number of streams that the driver may have destroyed.
#[inline]
pub(crate) fn destroyed() -> u64 {
    DESTROYED.load(Relaxed)
}

/// Creates a stream by `create`, or gives a kept one of this kind.
///
/// # Safety
///
/// 1. `stream` is valid for writing, and `create` writes it.
pub(crate) unsafe fn create(
    stream: *mut *mut c_void,
    kind: Kind,
    create: impl FnOnce() -> Status,
) -> Result<(), Refusal> {
    if let Some(kept) = reuse(kind) {
        // SAFETY: 1. is the caller's promise.
        unsafe { stream.write(ptr::without_provenance_mut(kept)) };
        return Ok(());
    }
    match create() {
        SUCCESS => {
            // SAFETY: 1. the driver has written it.
            let made = unsafe { stream.read() };
            streams().live.insert(made.addr(), kind);
            Ok(())
        }
        status => Err(Refusal::Status(status)),
    }
}

/// Keeps a stream that the program destroys. The driver destroys it if it is captured, which `is_capturing` asks, if no
/// device is served, or if its device was reset.
pub(crate) fn destroy(stream: *mut c_void, is_capturing: impl FnOnce(*mut c_uint) -> Status) -> Result<(), Refusal> {
    let mut captured = 0;
    let is_idle = is_capturing(&raw mut captured) == SUCCESS && captured == 0;
    if is_idle && keep(stream.addr(), served::any_open()) {
        return Ok(());
    }
    DESTROYED.fetch_add(1, Relaxed);
    Err(Refusal::Driver)
}

fn reuse(kind: Kind) -> Option<usize> {
    let mut streams = streams();
    let stream = streams.kept.get_mut(&kind)?.pop()?;
    streams.live.insert(stream, kind);
    Some(stream)
}

fn keep(stream: usize, is_served: bool) -> bool {
    let mut streams = streams();
    let kind = streams.live.remove(&stream).filter(|kind| is_served && !served::is_reset(kind.device));
    let Some(kind) = kind else { return false };
    streams.kept.entry(kind).or_default().push(stream);
    true
}

/// Forgets the streams of a device, which a reset destroys.
pub(crate) fn forget(device: u32) {
    let mut streams = streams();
    streams.live.retain(|_, kind| kind.device != device);
    streams.kept.retain(|kind, _| kind.device != device);
}

fn streams() -> MutexGuard<'static, Streams> {
    // Each change is one step, so a panic leaves it whole.
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_had_again_by_the_next_of_its_kind() {
        let kind = Kind { device: 7, flags: 1, priority: 0 };
        for handle in [0xa, 0xb] {
            let mut made: *mut c_void = ptr::null_mut();
            let place = &raw mut made;
            let create = || {
                // SAFETY: 1. it is a local variable.
                unsafe { place.write(ptr::without_provenance_mut(handle)) };
                SUCCESS
            };
            // SAFETY: 1. it is a local variable, which is written.
            assert_eq!(unsafe { super::create(place, kind, create) }, Ok(()));
        }
        assert!(keep(0xa, true));
        assert!(!keep(0xa, true), "it is kept already");
        assert!(!keep(0xb, false), "no memory is served");
        assert!(!keep(0xc, true), "it was made in another way");
        assert_eq!(reuse(Kind { flags: 0, ..kind }), None);
        assert_eq!(reuse(kind), Some(0xa));
        assert_eq!(reuse(kind), None);
        assert!(keep(0xa, true));
        forget(kind.device);
        assert_eq!(reuse(kind), None, "a reset destroyed it");
    }
}

//! The devices that Cachette serves.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::hal::StreamRef;
use cachette::{Allocator, Label, Stream};
use cachette_process::{self as process, write_line};

use crate::entry::Thread;
use crate::library::Behind;
use crate::status::{Refusal, SUCCESS, Status};
use crate::{captures, driver_pools, streams, summary};

/// A device whose memory comes from Cachette.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) device: u32,
    pub(crate) allocator: &'static Allocator,
    /// The stream of memory that may be used on every stream at once. No work is queued in it.
    pub(crate) idle: Stream,
    /// How snapshots show the memory.
    pub(crate) label: Label,
}

/// The devices that the program has reset, one bit for each. Relaxed: a program orders a reset and its requests.
static RESET: AtomicU64 = AtomicU64::new(0);
static DEVICES: [OnceLock<Served>; process::MOST_DEVICES] = [const { OnceLock::new() }; process::MOST_DEVICES];

/// What serves a device, opened at first use.
#[cold]
pub(crate) fn device<C>(behind: &'static Behind<C>, device: u32) -> Result<&'static Served, Refusal> {
    if is_reset(device) {
        return Err(Refusal::Driver);
    }
    behind.start()?;
    let place = DEVICES.get(device as usize).ok_or(Refusal::Driver)?;
    // In a forked child there is an error instead of an allocator.
    let allocator = process::allocator(device)?;
    if place.get().is_none() {
        let idle = allocator.create_stream()?;
        summary::at_exit();
        // If another thread was faster, this stream is destroyed.
        let _ = place.set(Served { device, allocator, idle, label: Label::new("front") });
    }
    place.get().ok_or(Refusal::Driver)
}

/// What serves the thread's current context or device, which has the number `key`.
#[inline]
pub(crate) fn current(
    thread: &Thread,
    key: usize,
    open: impl FnOnce() -> Result<&'static Served, Refusal>,
) -> Result<&'static Served, Refusal> {
    let (known, served) = thread.current.get();
    if known == key && RESET.load(Relaxed) == 0 {
        return served.ok_or(Refusal::Driver);
    }
    let served = open();
    thread.current.set((key, served.ok()));
    served
}

/// What serves a stream, which `find` finds at its first request: a stream stays with its device.
///
/// The default stream is a stream of the current context, so it is looked up at every request.
#[inline]
pub(crate) fn of_stream(
    thread: &Thread,
    stream: StreamRef,
    find: impl FnOnce() -> Result<&'static Served, Refusal>,
) -> Result<&'static Served, Refusal> {
    let key = (stream.raw(), streams::destroyed());
    let (known, served) = thread.stream.get();
    if let Some(served) = served
        && known == key
        && RESET.load(Relaxed) == 0
    {
        return Ok(served);
    }
    if streams::is_gone(stream) {
        return Err(Refusal::Stream);
    }
    let served = find()?;
    thread.stream.set((key, (stream != StreamRef::DEFAULT).then_some(served)));
    Ok(served)
}

pub(crate) fn any_open() -> bool {
    DEVICES.iter().any(|place| place.get().is_some())
}

/// Resets a device by `reset`. If that succeeds, the device is left to the driver: the reset has taken the memory that
/// Cachette holds there.
pub(crate) fn reset_by(device: u32, reset: impl FnOnce() -> Status) -> Result<(), Refusal> {
    let bit = 1_u64.checked_shl(device).unwrap_or(0);
    // Before the reset: it ends graphs, whose memory the next request of another device would free.
    let before = RESET.fetch_or(bit, Relaxed);
    let status = reset();
    if status != SUCCESS {
        RESET.fetch_and(before | !bit, Relaxed);
        return Err(Refusal::Status(status));
    }
    if any_open() {
        write_line(format_args!("device {device} was reset; the driver serves it from now on"));
    }
    streams::forget(device);
    captures::forget(device);
    driver_pools::changed();
    Ok(())
}

/// Whether the program has reset a device.
#[inline]
pub(crate) fn is_reset(device: u32) -> bool {
    RESET.load(Relaxed) & 1_u64.checked_shl(device).unwrap_or(0) != 0
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use cachette::Backends;

    use super::*;

    #[test]
    fn a_stream_is_looked_up_again_after_the_driver_destroyed_one() {
        let allocator: &'static Allocator = Box::leak(Box::new(Allocator::new(Backends::open("host").unwrap())));
        let idle = allocator.create_stream().unwrap();
        let served: &'static Served = Box::leak(Box::new(Served { device: 0, allocator, idle, label: Label::NONE }));
        let thread = Thread::new();
        let lookups = std::cell::Cell::new(0);
        let ask = |stream: usize| {
            let current = || {
                lookups.set(lookups.get() + 1);
                Ok(served)
            };
            of_stream(&thread, StreamRef::from_raw(stream), current).unwrap();
            lookups.get()
        };
        assert_eq!([ask(8), ask(8)], [1, 1]);
        assert_eq!([ask(9), ask(9)], [2, 2], "another stream may have another device");
        // It was made in another way, so the driver destroys it, and may give its handle to another stream.
        let destroyed = streams::destroy(ptr::without_provenance_mut(20), || unreachable!("the driver ends it"));
        assert_eq!(destroyed, Err(Refusal::Driver));
        assert_eq!([ask(9), ask(9)], [3, 3]);
        assert_eq!([ask(0), ask(0)], [4, 5], "the default stream is one of the current context");
    }
}

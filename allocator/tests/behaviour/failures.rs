//! Every driver call of every operation fails once, in turn, and nothing is lost by it.

use std::cell::Cell;

use cachette::Error;
use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::{HostConfig, HostDevice};

use crate::fixture::{KIB, MIB, Stream, TestAllocator, assert_sound, fail_call};

const KINDS: [ErrorKind; 3] = [ErrorKind::OutOfMemory, ErrorKind::Other, ErrorKind::Fault];

/// An allocator on a stepped device of 24 MiB that notices every misuse.
fn checked(text: &str) -> TestAllocator {
    TestAllocator::checked(HostConfig::default().capacity(24 * MIB).stepped(11), text)
}

impl TestAllocator {
    /// Allocates `bytes` on `stream` and frees them again.
    fn cache(&self, bytes: u64, stream: &Stream) {
        drop(self.allocate(bytes, stream));
    }

    /// Allocates `bytes` on `stream` and frees them while `side` uses them.
    fn cache_in_use(&self, bytes: u64, stream: &Stream, side: &Stream) {
        self.allocate(bytes, stream).record_stream(side);
    }

    /// Whatever happened before, the allocator serves requests.
    fn assert_usable(&self) {
        let stream = self.stream();
        let live = [KIB, 3 * MIB].map(|bytes| self.allocator.allocate(bytes, &stream));
        assert!(live.iter().all(Result::is_ok), "{live:?}");
        drop(live);
        assert!(self.allocator.allocate(20 * MIB, &stream).is_ok());
        self.allocator.empty_cache().expect("nothing fails any more");
    }
}

/// Lets one driver call fail.
struct FailingCall<'a> {
    host: &'a HostDevice,
    nth: u64,
    kind: ErrorKind,
    reached: Cell<bool>,
}

impl FailingCall<'_> {
    /// Does `act` with the `nth` driver call in it failing.
    fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let (done, reached) = fail_call(self.host, self.nth, self.kind, act);
        self.reached.set(reached);
        done
    }

    /// Whether `outcome` is one that the failure explains.
    fn explains(&self, outcome: &Result<(), Error>) -> bool {
        match outcome {
            Ok(()) => true,
            Err(Error::Device(error)) => self.reached.get() && error.kind() == self.kind,
            Err(Error::OutOfMemory(_)) => self.reached.get() && self.kind == ErrorKind::OutOfMemory,
            Err(_) => false,
        }
    }
}

/// Runs `operation` with its first driver call failing, its second, and so on until none is left to fail.
///
/// Returns how many calls there were.
fn enumerate(settings: &str, operation: impl Fn(&TestAllocator, &FailingCall<'_>) -> Result<(), Error>) -> u64 {
    let mut calls = 0;
    for kind in KINDS {
        for nth in 1..100 {
            let test = checked(settings);
            let failing = FailingCall { host: &test.device, nth, kind, reached: Cell::new(false) };
            let outcome = operation(&test, &failing);
            assert!(failing.explains(&outcome), "call {nth}, {kind:?}: {outcome:?}");
            let reached = failing.reached.get();
            assert_sound(&test.allocator);
            test.assert_usable();
            test.assert_returns_everything();
            if !reached {
                calls = nth - 1;
                break;
            }
        }
    }
    calls
}

#[test]
fn a_hit_and_a_free_have_no_call_that_could_fail() {
    let calls = enumerate("", |test, failing| {
        let stream = test.stream();
        test.cache(KIB, &stream);
        failing.during(|| test.allocator.allocate(KIB, &stream).map(drop))
    });
    assert_eq!(calls, 0);
}

#[test]
fn m6_a_miss_survives_every_failure() {
    for bytes in [KIB, 3 * MIB, 12 * MIB] {
        let calls = enumerate("", |test, failing| {
            let stream = test.stream();
            failing.during(|| test.allocator.allocate(bytes, &stream).map(drop))
        });
        // Besides the memory: whether the stream is captured, and the mode of captures there and back.
        assert_eq!(calls, 4);
    }
}

#[test]
fn a_stream_that_could_not_be_made_leaves_nothing() {
    let calls = enumerate("", |test, failing| {
        let made = failing.during(|| test.allocator.create_stream());
        made.map(drop)
    });
    assert_eq!(calls, 1);
}

#[test]
fn e2_a_free_of_memory_in_use_survives_every_failure() {
    let calls = enumerate("", |test, failing| {
        let [stream, left, right] = test.streams();
        let memory = test.allocator.allocate(12 * MIB, &stream)?;
        memory.record_stream(&left);
        memory.record_stream(&right);
        failing.during(|| drop(memory));
        assert_eq!(test.allocator.stats().active.all.current, 1);
        assert_sound(&test.allocator);
        Ok(())
    });
    // Each of two streams costs an event and its record. Only the own stream is asked whether it is captured.
    assert_eq!(calls, 5);
}

#[test]
fn e3_a_request_that_polls_events_survives_every_failure() {
    let calls = enumerate("", |test, failing| {
        let [stream, side] = test.streams();
        test.cache_in_use(MIB, &stream, &side);
        test.cache_in_use(MIB, &stream, &side);
        test.device.run_until_idle();
        failing.during(|| test.allocator.allocate(MIB, &stream).map(drop))
    });
    assert!(calls >= 2, "{calls}");
}

#[test]
fn release_after_survives_every_failure() {
    let calls = enumerate("", |test, failing| {
        let [stream, left, right] = test.streams();
        let memory = test.allocator.allocate(12 * MIB, &stream)?;
        let released = failing.during(|| memory.release_after(&[&left, &right]));
        assert_sound(&test.allocator);
        // On failure the memory is still given back, later.
        test.device.run_until_idle();
        test.cache(KIB, &stream);
        test.device.run_until_idle();
        assert_eq!(test.allocator.stats().active.all.current, 0);
        Ok(released?)
    });
    // As for a free of memory in use.
    assert_eq!(calls, 9);
}

#[test]
fn a_request_behind_a_wait_survives_every_failure() {
    let calls = enumerate("", |test, failing| {
        let [stream, left, right] = test.streams();
        let memory = test.allocator.allocate(12 * MIB, &stream)?;
        memory.release_after(&[&left, &right])?;
        let next = failing.during(|| test.allocator.allocate(12 * MIB, &stream));
        assert_sound(&test.allocator);
        next.map(drop)
    });
    // Two waits, and whether the stream is captured.
    assert_eq!(calls, 3);
}

#[test]
fn m10_emptying_the_cache_survives_every_failure() {
    let calls = enumerate("", |test, failing| {
        let [stream, side] = test.streams();
        test.cache(KIB, &stream);
        test.cache(KIB, &side);
        test.cache_in_use(MIB, &side, &stream);
        let memory = test.allocator.allocate(12 * MIB, &stream)?;
        memory.release_after(&[&side])?;
        let emptied = failing.during(|| test.allocator.empty_cache());
        assert_sound(&test.allocator);
        emptied.map(drop)
    });
    assert!(calls >= 6, "{calls}");
}

/// Leaves memory of two streams, the second of which a third may use.
type Prepare = fn(&TestAllocator, &[Stream; 3]);

#[test]
fn d1_m9_m10_m17_making_room_in_every_way_survives_every_failure() {
    let cached: Prepare = |test, [stream, owner, _]| {
        test.cache(12 * MIB, owner);
        test.cache(10 * MIB, stream);
    };
    let used_by_others: Prepare = |test, [stream, left, right]| {
        let halves = [(); 2].map(|()| test.allocate(9 * MIB, stream));
        for (half, side) in halves.into_iter().zip([left, right]) {
            half.record_stream(side);
        }
    };
    let foreign: Prepare = |test, [_, owner, side]| test.cache_in_use(20 * MIB, owner, side);
    let own: Prepare = |test, [stream, ..]| [12, 10].into_iter().for_each(|mib| test.cache(mib * MIB, stream));
    let old: Prepare = |test, [stream, ..]| test.cache(10 * MIB, stream);
    for (name, text, prepare, asked, least) in [
        ("unused memory", "", cached, 20, 4),
        ("memory that others use", "", used_by_others, 18, 4),
        ("a foreign segment", "", foreign, 20, 4),
        ("unsplittable segments", "large_segment_size_mb:11,max_split_size_mb:12", own, 14, 3),
        ("garbage", "garbage_collection_threshold:0.1,memory_limit:24M", old, 12, 3),
    ] {
        let calls = enumerate(text, |test, failing| {
            let streams = test.streams();
            prepare(test, &streams);
            let next = failing.during(|| test.allocator.allocate(asked * MIB, &streams[0]));
            assert_sound(&test.allocator);
            next.map(drop)
        });
        assert!(calls >= least, "{name}: {calls}");
    }
}

#[test]
fn m18_running_out_survives_every_failure() {
    enumerate("", |test, failing| {
        let [stream, side] = test.streams();
        test.cache_in_use(12 * MIB, &stream, &side);
        test.cache(KIB, &side);
        let failed = failing.during(|| test.allocator.allocate(100 * MIB, &stream));
        assert_sound(&test.allocator);
        match failed.map(drop) {
            Err(Error::OutOfMemory(_)) => Ok(()),
            Ok(()) => panic!("100 MiB on a device of 24"),
            other => other,
        }
    });
}

#[test]
fn raw_memory_survives_every_failure() {
    enumerate("", |test, failing| {
        let [stream, side] = test.streams();
        // SAFETY: 1. 2. the stream is this allocator's own.
        let raw = failing.during(|| unsafe { test.allocator.allocate_raw(MIB, stream.handle()) })?;
        test.allocator.free_raw(raw)?;
        drop(side);
        Ok(())
    });
    enumerate("", |test, failing| {
        let [stream, side] = test.streams();
        // SAFETY: 1. 2. the stream is this allocator's own.
        let raw = unsafe { test.allocator.allocate_raw(MIB, stream.handle()) }?;
        // SAFETY: 1. 2. the stream is this allocator's own.
        unsafe { test.allocator.record_stream_raw(raw, side.handle()) }?;
        let freed = failing.during(|| test.allocator.free_raw(raw));
        // It counts as freed all the same.
        assert!(test.allocator.free_raw(raw).is_err());
        assert_sound(&test.allocator);
        freed
    });
}

#[test]
fn m23_requests_past_the_cache_survive_every_failure() {
    let calls = enumerate("caching:False", |test, failing| {
        let stream = test.stream();
        failing.during(|| test.allocator.allocate(MIB, &stream)).map(drop)
    });
    assert_eq!(calls, 3, "the capture mode, the memory, and the mode again");
    enumerate("caching:False", |test, failing| {
        let stream = test.stream();
        // SAFETY: 1. 2. the stream is this allocator's own.
        let raw = unsafe { test.allocator.allocate_raw(MIB, stream.handle()) }?;
        let freed = failing.during(|| test.allocator.free_raw(raw));
        if freed.is_err() {
            // It counts as freed all the same.
            let again = test.allocator.free_raw(raw);
            assert!(matches!(again, Err(Error::InvalidPointer { .. })), "{again:?}");
            test.allocator.empty_cache()?;
        }
        freed
    });
}

#[test]
fn emptying_the_cache_goes_on_after_a_failure() {
    for pool in [false, true] {
        let test = TestAllocator::new();
        let streams = test.streams::<3>();
        let user = test.allocator.create_pool();
        for stream in &streams {
            if pool {
                drop(user.allocate(12 * MIB, stream).unwrap());
            } else {
                drop(test.allocate(12 * MIB, stream));
            }
        }
        test.device.fail_next(Call::Free, 1, ErrorKind::Other);
        let empty = || {
            if pool { user.empty_cache() } else { test.allocator.empty_cache() }
        };
        assert!(empty().is_err());
        assert_eq!(test.stats().reserved_bytes.all.current, 12 * MIB);
        assert_eq!(empty(), Ok(12 * MIB));
        test.assert_sound();
    }
}

#[test]
fn a_use_that_cannot_be_marked_stops_no_other_request() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let [used, free] = [(); 2].map(|()| test.allocate(MIB, &stream));
    let address = free.address();
    used.record_stream(&side);
    for nth in 1..=4 {
        test.device.fail_next(Call::Record, nth, ErrorKind::Other);
    }
    drop((used, free));
    assert_eq!(test.allocate(MIB, &stream).address(), address);
    test.device.clear_failures();
    drop(test.allocate(2 * MIB, &stream));
    assert_eq!(test.stats().active.all.current, 0);
    test.assert_sound();
}

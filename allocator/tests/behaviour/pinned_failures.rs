//! Pinned memory when it is short and when the driver fails: every call fails once in turn, and nothing is lost.

use std::sync::Arc;

use cachette::hal::{Call, ErrorKind};
use cachette::{Allocator, Error};
use cachette_hal_host::{HostConfig, HostDevice, Live};
use cachette_hal_testing::Checked;

use crate::bed::{Bed, config, device};

const KIB: usize = 1 << 10;

/// Lets the next `times` calls for memory find none.
fn exhaust(bed: &Bed, times: u64) {
    for nth in 1..=times {
        bed.device.fail_next(Call::AllocatePinned, nth, ErrorKind::OutOfMemory);
    }
}

#[test]
fn exhaustion_gives_free_blocks_back_and_tries_again() {
    let bed = Bed::new();
    let held = bed.pin(KIB);
    drop(bed.pin(2 * KIB));
    exhaust(&bed, 1);
    let memory = bed.pin(4 * KIB);
    assert_eq!(bed.device.calls(Call::FreePinned), 1);
    assert_eq!(bed.device.live().pinned, 2);
    drop((held, memory));
    bed.assert_returns_everything();
}

#[test]
fn exhaustion_waits_for_streams_if_that_may_be() {
    let bed = Bed::new();
    let stream = bed.stream();
    let held = bed.hold(&stream);
    let memory = bed.pin(KIB);
    let at = memory.ptr();
    memory.record_stream(&stream);
    drop(memory);
    exhaust(&bed, 2);
    let released = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(held);
    });
    assert_eq!(bed.pin(KIB).ptr(), at);
    released.join().expect("it ends");
    drop(stream);
    bed.assert_returns_everything();
}

#[test]
fn exhaustion_is_told_with_its_figures_and_passes() {
    let bed = Bed::new();
    let held = bed.pin(4 * KIB);
    exhaust(&bed, 2);
    let error = bed.allocator.pinned().allocate(40 * KIB);
    let error = error.expect_err("there is none");
    let expected = Error::OutOfPinnedMemory { requested: 40 << 10, block: 64 << 10, held: 4 << 10, active: 4 << 10 };
    assert_eq!(error, expected);
    assert!(
        error.to_string().starts_with(
            "out of pinned memory: 40.00 KiB were asked for, which takes 64.00 KiB; this allocator holds 4.00 KiB"
        ),
        "{error}"
    );
    drop((held, bed.pin(40 * KIB)));
    bed.assert_returns_everything();
}

#[test]
fn exhaustion_does_not_wait_where_that_is_forbidden() {
    let bed = Bed::with("never_block:True");
    drop(bed.pin(KIB));
    exhaust(&bed, 1);
    assert!(bed.allocator.pinned().allocate(2 * KIB).is_err());
    assert_eq!(bed.device.calls(Call::FreePinned), 0);
    assert_eq!(bed.pin(2 * KIB).bytes(), 2 * KIB);
}

#[test]
fn more_than_the_host_has_is_refused_and_nothing_is_lost() {
    for text in ["", "pinned_use_cuda_host_register:True"] {
        let bed = Bed::with(text);
        let error = bed.allocator.pinned().allocate(1 << 59);
        assert!(matches!(error, Err(Error::OutOfPinnedMemory { .. })), "{error:?}");
        drop(bed.pin(KIB));
        bed.assert_returns_everything();
    }
}

#[test]
fn n8_a_block_that_cannot_be_freed_stays_and_the_others_go() {
    for catch_all in [false, true] {
        let text = if catch_all { "pinned_free_catch_all:True" } else { "" };
        let bed = Bed::with(text);
        drop([(); 3].map(|()| bed.pin(KIB)));
        bed.device.fail_next(Call::FreePinned, 2, ErrorKind::Other);
        let emptied = bed.allocator.pinned().empty_cache();
        if catch_all {
            assert_eq!(emptied, Ok(2 << 10));
        } else {
            assert!(matches!(emptied, Err(Error::Device(_))), "{emptied:?}");
        }
        assert_eq!(bed.device.live().pinned, 1);
        let calls = bed.calls_of(Call::AllocatePinned, || drop(bed.pin(KIB)));
        assert_eq!(calls, 0, "it still serves");
        assert_eq!(bed.allocator.pinned().empty_cache(), Ok(1 << 10));
        bed.assert_returns_everything();
    }
}

type Watched = Arc<Checked<HostDevice>>;

/// An allocator on a stepped device that notices every misuse.
struct Rig {
    host: HostDevice,
    watched: Watched,
    allocator: Allocator<Watched>,
}

impl Rig {
    fn new(text: &str) -> Self {
        let host = device(HostConfig::default().stepped(11));
        let watched = Arc::new(Checked::new(host.clone()));
        let allocator = Allocator::with_config(Arc::clone(&watched), &config(text));
        Self { host, watched, allocator }
    }

    /// Makes memory, frees it in use, finds it again, makes more, empties the cache.
    fn work(&self) -> Vec<Error> {
        let pinned = self.allocator.pinned();
        let mut errors = Vec::new();
        let stream = match self.allocator.create_stream() {
            Ok(stream) => stream,
            Err(error) => return vec![error],
        };
        for bytes in [KIB, KIB, 8 * KIB] {
            match pinned.allocate(bytes) {
                Ok(memory) => memory.record_stream(&stream),
                Err(error) => errors.push(error),
            }
            self.host.run_until_idle();
        }
        match pinned.allocate_raw(KIB) {
            Ok(raw) => {
                // SAFETY: 1. 2. the stream is the allocator's own.
                errors.extend(unsafe { pinned.record_stream_raw(raw, stream.handle()) }.err());
                errors.extend(pinned.free_raw(raw).err());
            }
            Err(error) => errors.push(error),
        }
        self.host.run_until_idle();
        errors.extend(pinned.empty_cache().err());
        errors
    }
}

#[test]
fn every_call_may_fail_and_nothing_is_lost() {
    for text in ["", "pinned_use_hip_host_register:True", "pinned_reserve_segment_size_mb:1", "never_block:True"] {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::Other, ErrorKind::Fault] {
            for nth in 1.. {
                let rig = Rig::new(text);
                let before = rig.host.total_calls();
                rig.host.fail_nth_call(nth, kind);
                let errors = rig.work();
                let blown = rig.host.total_calls() - before >= nth;
                rig.host.clear_failures();
                let explained = |error: &Error| match error {
                    Error::Device(error) => error.kind() == kind,
                    Error::OutOfPinnedMemory { .. } => kind == ErrorKind::OutOfMemory,
                    _ => false,
                };
                assert!(blown || errors.is_empty(), "call {nth}: {errors:?}");
                assert!(errors.iter().all(explained), "call {nth}: {errors:?}");
                assert_eq!(rig.work(), [], "usable after call {nth} failed with {kind:?}");
                drop(rig.allocator);
                assert_eq!(rig.host.live(), Live::default(), "{text}: call {nth}, {kind:?}");
                assert!(rig.watched.misuses().is_empty(), "{:?}", rig.watched.misuses());
                if !blown {
                    break;
                }
            }
        }
    }
}

#[test]
fn every_call_of_the_end_may_fail_and_nothing_is_lost() {
    for text in ["", "pinned_reserve_segment_size_mb:1"] {
        for nth in 1.. {
            let bed = Bed::on(HostConfig::default().stepped(3), text);
            let stream = bed.stream();
            let (late, used) = (bed.pin(KIB), bed.pin(2 * KIB));
            late.record_stream(&stream);
            used.record_stream(&stream);
            drop((used, bed.pin(4 * KIB)));
            let Bed { device, allocator } = bed;
            let before = device.total_calls();
            device.fail_nth_call(nth, ErrorKind::Other);
            drop((stream, allocator));
            drop(late);
            let blown = device.total_calls() - before >= nth;
            device.clear_failures();
            assert_eq!(device.live().pinned, 0, "{text}: call {nth}");
            if !blown {
                break;
            }
        }
    }
}

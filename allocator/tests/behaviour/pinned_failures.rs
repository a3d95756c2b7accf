//! Pinned memory when it is short and when the driver fails: every call fails once in turn, and nothing is lost.

use std::sync::Arc;

use cachette::Error;
use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{PATIENCE, is_waiting, start};
use crate::fixture::{TestAllocator, fail_call, launch};
use crate::pinned::WHOLE;

/// Lets the next `times` calls for memory find none.
fn exhaust(test: &TestAllocator, times: u64) {
    for nth in 1..=times {
        test.device.fail_next(Call::AllocatePinned, nth, ErrorKind::OutOfMemory);
    }
}

#[test]
fn exhaustion_gives_free_blocks_back_and_tries_again() {
    let test = TestAllocator::new();
    let held = test.pin(WHOLE);
    drop(test.pin(2 * WHOLE));
    exhaust(&test, 1);
    let memory = test.pin(4 * WHOLE);
    assert_eq!(test.device.calls(Call::FreePinned), 1);
    assert_eq!(test.device.live().pinned, 2);
    test.assert_returns_everything_after((held, memory));
}

#[test]
fn exhaustion_asks_for_the_pages_of_the_block_alone() {
    let test = TestAllocator::new();
    exhaust(&test, 1);
    let memory = test.pin(5000);
    assert_eq!(test.allocator.pinned().stats().allocated_bytes.current, 8192);
    drop(memory);
    test.assert_returns_everything();
}

#[test]
fn exhaustion_waits_for_blocks_that_another_thread_gives_back() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), "");
    drop([(); 2].map(|()| test.pin(WHOLE)));
    let (allocator, device, next) = (test.allocator.clone(), test.device.clone(), Arc::clone(&hook));
    let amid = hook.start(Call::FreePinned, None, move || {
        // The driver has no room before the other thread has given back the second block, too.
        for nth in 1..=2 {
            device.fail_next(Call::AllocatePinned, nth, ErrorKind::OutOfMemory);
        }
        next.set(Call::FreePinned, None, move || device.clear_failures());
        allocator.pinned().allocate(2 * WHOLE).map(drop)
    });
    assert_eq!(test.allocator.pinned().empty_cache(), Ok(2 * WHOLE));
    assert_eq!(amid.result(), Ok(()));
    test.assert_returns_everything();
}

#[test]
fn exhaustion_waits_for_streams_if_that_may_be() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let held = test.hold(&stream);
    let memory = test.pin(WHOLE);
    let at = memory.ptr();
    memory.record_stream(&stream);
    drop(memory);
    exhaust(&test, 2);
    let allocator = test.allocator.clone();
    let pinning = start(move || allocator.pinned().allocate(WHOLE).map(|memory| memory.ptr().addr()));
    assert!(is_waiting(&pinning));
    drop(held);
    assert_eq!(pinning.recv_timeout(PATIENCE).expect("it ends"), Ok(at.addr()));
    test.assert_returns_everything_after(stream);
}

#[test]
fn exhaustion_is_told_with_its_figures_and_passes() {
    let test = TestAllocator::new();
    let held = test.pin(4 * WHOLE);
    exhaust(&test, 2);
    let error = test.allocator.pinned().allocate(20 * WHOLE);
    let error = error.expect_err("there is none");
    let expected = Error::OutOfPinnedMemory { requested: 40 << 20, block: 40 << 20, held: 8 << 20, active: 8 << 20 };
    assert_eq!(error, expected);
    assert!(
        error.to_string().starts_with(
            "out of pinned memory: tried to allocate 40.00 MiB (a block of 40.00 MiB); this allocator holds 8.00 MiB"
        ),
        "{error}"
    );
    drop((held, test.pin(40 * WHOLE)));
    test.assert_returns_everything();
}

#[test]
fn exhaustion_does_not_wait_where_that_is_forbidden() {
    let test = TestAllocator::with("never_block:True");
    drop(test.pin(WHOLE));
    exhaust(&test, 1);
    assert!(test.allocator.pinned().allocate(2 * WHOLE).is_err());
    assert_eq!(test.device.calls(Call::FreePinned), 0);
    assert_eq!(test.pin(2 * WHOLE).bytes(), 2 * WHOLE);
}

#[test]
fn a_failed_wait_for_a_graph_keeps_no_other_block() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let (graph, memory) = test.filling(&pool, &stream, 1);
    launch(&graph, &stream);
    drop(test.pin(WHOLE));
    // The end of the pool waits for its graph, and so does the emptying.
    for nth in 1..=2 {
        test.device.fail_next(Call::Wait, nth, ErrorKind::Other);
    }
    drop((graph, memory, pool));
    test.allocator.pinned().empty_cache().expect_err("the driver fails");
    assert_eq!(test.device.live().pinned, 0);
    test.assert_returns_everything_after(stream);
}

#[test]
fn a_failed_poll_keeps_no_other_block() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let used = test.pin(WHOLE);
    used.record_stream(&stream);
    drop((used, test.pin(2 * WHOLE)));
    test.device.fail_next(Call::Poll, 1, ErrorKind::Other);
    test.allocator.pinned().empty_cache().expect_err("the driver fails");
    assert_eq!(test.device.live().pinned, 1, "the stream may use one");
    test.assert_returns_everything_after(stream);
}

#[test]
fn more_than_the_host_has_is_refused_and_nothing_is_lost() {
    for text in ["", "pinned_use_cuda_host_register:True"] {
        let test = TestAllocator::with(text);
        let error = test.allocator.pinned().allocate(1 << 59);
        assert!(matches!(error, Err(Error::OutOfPinnedMemory { .. })), "{error:?}");
        drop(test.pin(WHOLE));
        test.assert_returns_everything();
    }
}

#[test]
fn n8_a_block_that_cannot_be_freed_stays_and_the_others_go() {
    for catch_all in [false, true] {
        let settings = if catch_all { "pinned_free_catch_all:True" } else { "" };
        let test = TestAllocator::with(settings);
        drop([(); 3].map(|()| test.pin(WHOLE)));
        test.device.fail_next(Call::FreePinned, 2, ErrorKind::Other);
        let emptied = test.allocator.pinned().empty_cache();
        if catch_all {
            assert_eq!(emptied, Ok(2 * WHOLE));
        } else {
            assert!(matches!(emptied, Err(Error::Device(_))), "{emptied:?}");
        }
        assert_eq!(test.device.live().pinned, 1);
        let calls = test.calls_of(Call::AllocatePinned, || drop(test.pin(WHOLE)));
        assert_eq!(calls, 0, "it still serves");
        assert_eq!(test.allocator.pinned().empty_cache(), Ok(WHOLE));
        test.assert_returns_everything();
    }
}

impl TestAllocator {
    /// Makes memory, frees it in use, finds it again, makes more, empties the cache.
    fn use_pinned(&self) -> Vec<Error> {
        let pinned = self.allocator.pinned();
        let mut errors = Vec::new();
        let stream = match self.allocator.create_stream() {
            Ok(stream) => stream,
            Err(error) => return vec![error],
        };
        for bytes in [1 << 10, WHOLE, 2 * WHOLE] {
            match pinned.allocate(bytes) {
                Ok(memory) => memory.record_stream(&stream),
                Err(error) => errors.push(error),
            }
            self.device.run_until_idle();
        }
        match pinned.allocate_raw(WHOLE) {
            Ok(raw) => {
                // SAFETY: 1. 2. the stream is the allocator's own.
                errors.extend(unsafe { pinned.record_stream_raw(raw, &self.allocator, stream.handle()) }.err());
                errors.extend(pinned.free_raw(raw).err());
            }
            Err(error) => errors.push(error),
        }
        self.device.run_until_idle();
        errors.extend(pinned.empty_cache().err());
        errors
    }
}

#[test]
fn every_call_may_fail_and_nothing_is_lost() {
    for text in ["", "pinned_use_hip_host_register:True", "pinned_reserve_segment_size_mb:1", "never_block:True"] {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::Other, ErrorKind::Fault] {
            for nth in 1.. {
                let test = TestAllocator::checked(HostConfig::default().stepped(11), text);
                let (errors, reached) = fail_call(&test.device, nth, kind, || test.use_pinned());
                let explained = |error: &Error| match error {
                    Error::Device(error) => error.kind() == kind,
                    Error::OutOfPinnedMemory { .. } => kind == ErrorKind::OutOfMemory,
                    _ => false,
                };
                assert!(reached || errors.is_empty(), "call {nth}: {errors:?}");
                assert!(errors.iter().all(explained), "call {nth}: {errors:?}");
                assert_eq!(test.use_pinned(), [], "usable after call {nth} failed with {kind:?}");
                test.assert_returns_everything();
                if !reached {
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
            let (test, [stream]) = TestAllocator::on(HostConfig::default().stepped(3), text).with_streams();
            let (late, used) = (test.pin(WHOLE), test.pin(2 * WHOLE));
            late.record_stream(&stream);
            used.record_stream(&stream);
            drop((used, test.pin(4 * WHOLE)));
            let TestAllocator { device, allocator, .. } = test;
            let ((), reached) = fail_call(&device, nth, ErrorKind::Other, || {
                drop((stream, allocator));
                drop(late);
            });
            assert_eq!(device.live().pinned, 0, "{text}: call {nth}");
            if !reached {
                break;
            }
        }
    }
}

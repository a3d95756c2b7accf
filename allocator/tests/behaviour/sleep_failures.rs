//! Pools that cannot sleep or wake lose nothing, and may try again.

use std::sync::Arc;

use cachette::Error;
use cachette::hal::{Call, ErrorKind, Feature};
use cachette::pool::{PoolOptions, PoolProblem};
use cachette::sleep::Contents;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{PATIENCE, is_waiting, start};
use crate::fixture::{Allocation, ELASTIC, MIB, Stream, TestAllocator, fail_call};
use crate::sleep::{assert_asleep_sound, assert_filled, filled, filled_with, problem};

#[test]
fn a_pool_that_cannot_wake_sleeps_on_and_loses_nothing() {
    let test = TestAllocator::elastic_on(HostConfig::default().capacity(64 * MIB), "");
    let (stream, pool, memory) = filled(&test);
    pool.sleep(Contents::Keep).expect("it can sleep");
    let greedy = test.allocate(54 * MIB, &stream);
    let PoolProblem::NoMemory { bytes } = problem(pool.wake()) else {
        panic!("there is no memory");
    };
    assert!(bytes >= 14 * MIB);
    assert!(pool.is_asleep());
    assert_asleep_sound(&test);
    drop(greedy);
    pool.wake().expect("what others do not use goes first");
    assert_filled(&test, &memory, &stream);
    test.assert_elastic_sound();
}

#[test]
fn waking_waits_for_free_memory_that_a_stream_still_uses() {
    let test = TestAllocator::elastic_on(HostConfig::default().capacity(64 * MIB), "");
    let (stream, pool, memory) = filled(&test);
    pool.sleep(Contents::Keep).expect("it can sleep");
    let busy = test.stream();
    let used = test.allocate(54 * MIB, &busy);
    let hold = test.hold(&busy);
    test.fill(&used, 1, &busy);
    drop(used);
    let waking = start(move || pool.wake().map(|_| pool));
    assert!(is_waiting(&waking));
    hold.release();
    let _pool = waking.recv_timeout(PATIENCE).expect("it ends").expect("the memory comes free");
    assert_filled(&test, &memory, &stream);
    test.assert_elastic_sound();
}

#[test]
fn waking_waits_for_memory_that_another_thread_returns() {
    // The hook runs before all memory counts as returned: chunks in the first case, a segment in the second.
    for (no_split, call) in [(false, Call::Unmap), (true, Call::Free)] {
        let (test, hook) = TestAllocator::hooked(HostConfig::default().capacity(64 * MIB), ELASTIC);
        let [own, other] = test.streams();
        let pool = Arc::new(test.allocator.create_pool());
        let memory = pool.allocate(32 * MIB, &own).expect("there is room");
        pool.sleep(Contents::Keep).expect("it can sleep");
        let options = PoolOptions::new().no_split(no_split);
        let emptied = test.allocator.create_pool_with(options).expect("it is new");
        drop(emptied.allocate(48 * MIB, &other).expect("there is room"));
        other.synchronize().expect("nothing fails");
        let also = Arc::clone(&pool);
        let woken = hook.start(call, None, move || also.wake());
        emptied.empty_cache().expect("nothing fails");
        assert_eq!(woken.result(), Ok(32 * MIB), "{call}");
        drop(memory);
    }
}

/// Fails one call after the other, from the first that falling asleep or waking makes on, and checks each time that
/// nothing is lost; neither are contents, where memory is `real`.
fn survives_every_failure(kind: ErrorKind, waking: bool, host: &HostConfig, real: bool) {
    let assert_filled = |test: &TestAllocator, memory: &[Allocation], stream: &Stream| {
        if real {
            assert_filled(test, memory, stream);
        }
    };
    for nth in 1.. {
        let test = TestAllocator::elastic_on(host.clone(), "");
        let (stream, pool, memory) = filled_with(&test, [3 * MIB, MIB / 2, 3 * MIB]);
        stream.synchronize().expect("nothing fails yet");
        if waking {
            pool.sleep(Contents::Keep).expect("it can sleep");
        }
        let (done, reached) = fail_call(&test.device, nth, kind, || {
            if waking { pool.wake().map(|_| ()) } else { pool.sleep(Contents::Keep).map(|_| ()) }
        });
        test.allocator.check().expect("every invariant holds");
        pool.wake().expect("nothing stands in the way any more");
        assert_filled(&test, &memory, &stream);
        if real {
            test.assert_elastic_sound();
        }
        pool.sleep(Contents::Keep).expect("nothing stands in the way");
        pool.wake().expect("nothing stands in the way");
        assert_filled(&test, &memory, &stream);
        test.assert_returns_everything_after((memory, pool, stream));
        if !reached {
            done.expect("no call failed");
            return;
        }
        assert!(nth < 500, "there is no end of calls");
    }
}

#[test]
fn a_driver_call_that_fails_anywhere_loses_nothing() {
    for waking in [false, true] {
        for kind in [ErrorKind::Other, ErrorKind::OutOfMemory] {
            survives_every_failure(kind, waking, &HostConfig::default(), true);
        }
    }
}

#[test]
fn addresses_reserved_anew_return_whatever_call_fails() {
    for waking in [false, true] {
        // Phantom, since real addresses could go to another test meanwhile.
        let host = HostConfig::default().withholding().phantom(true);
        survives_every_failure(ErrorKind::OutOfMemory, waking, &host, false);
    }
}

#[test]
fn addresses_that_the_driver_leaves_mapped_are_not_released() {
    for failing in 1..=4 {
        let host = HostConfig::default().withholding().phantom(true);
        let test = TestAllocator::elastic_on(host, "");
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let kept = pool.allocate(4 * MIB, &stream).expect("there is room");
        drop(pool.allocate(2 * MIB, &stream).expect("there is room"));
        // The first attempts to unmap the idle chunk fail, so it stays mapped.
        for nth in 1..=failing {
            test.device.fail_next(Call::Unmap, nth, ErrorKind::Other);
        }
        if let Err(error) = pool.sleep(Contents::Keep) {
            let Error::Device(error) = error else {
                panic!("{error}");
            };
            let told = (error.kind(), error.call());
            assert_eq!(told, (ErrorKind::Other, "unmap"), "{failing} failed");
            assert!(!pool.is_asleep(), "{failing} failed");
        }
        test.device.clear_failures();
        pool.wake().expect("nothing fails any more");
        pool.sleep(Contents::Keep).expect("nothing fails any more");
        pool.wake().expect("there is room");
        test.assert_returns_everything_after((kept, pool, stream));
    }
}

#[test]
fn addresses_that_did_not_return_serve_no_other_pool() {
    for failing in 1..=3 {
        // Phantom, since real addresses could go to another test meanwhile.
        let host = HostConfig::default().withholding().phantom(true);
        let test = TestAllocator::elastic_on(host, "");
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let memory = pool.allocate(4 * MIB, &stream).expect("there is room");
        // The sleep tries to reserve the addresses again, and so does the end of the pool.
        for nth in 1..=failing {
            test.device.fail_next(Call::Reserve, nth, ErrorKind::Other);
        }
        pool.sleep(Contents::Discard).expect("a later call reserves the addresses");
        drop((memory, pool));
        test.device.clear_failures();
        for _ in 0..2 {
            let pool = test.allocator.create_pool();
            let memory = pool.allocate(4 * MIB, &stream).expect("there is room");
            drop((memory, pool));
            test.allocator.empty_cache().expect("nothing fails any more");
        }
        test.assert_returns_everything_after(stream);
    }
}

#[test]
fn a_sleep_that_fails_half_way_is_undone_at_once() {
    for nth in 1..=2 {
        let test = TestAllocator::elastic_on(HostConfig::default(), "");
        let (stream, pool, memory) = filled(&test);
        test.device.fail_next(Call::Unmap, nth, ErrorKind::Other);
        let slept = pool.sleep(Contents::Keep);
        assert!(matches!(slept, Err(Error::Device(_))), "{slept:?}");
        assert!(!pool.is_asleep(), "nothing is away");
        assert_filled(&test, &memory, &stream);
        drop(pool.allocate(MIB, &stream).expect("it serves"));
    }
}

#[test]
fn a_chunk_that_the_driver_does_not_map_back_returns_with_its_pool() {
    for failing in 1..=4 {
        let test = TestAllocator::elastic_on(HostConfig::default(), "");
        let (stream, pool, memory) = filled_with(&test, [3 * MIB, MIB / 2, 3 * MIB]);
        for nth in 1..=failing {
            test.device.fail_next(Call::DestroyBacking, nth, ErrorKind::Other);
        }
        test.device.fail_next(Call::Map, 1, ErrorKind::Other);
        assert!(pool.sleep(Contents::Keep).is_err(), "{failing} failed");
        test.device.clear_failures();
        test.assert_returns_everything_after((memory, pool, stream));
    }
}

#[test]
fn a_pool_that_is_dropped_half_awake_returns_its_memory() {
    let test = TestAllocator::elastic_on(HostConfig::default(), "");
    let (stream, pool, memory) = filled_with(&test, [3 * MIB, MIB / 2, 3 * MIB]);
    pool.sleep(Contents::Keep).expect("it can sleep");
    // The second failure is in the undoing of the wake.
    test.device.fail_next(Call::SetAccess, 1, ErrorKind::Other);
    test.device.fail_next(Call::Unmap, 1, ErrorKind::Other);
    pool.wake().expect_err("the driver refuses");
    test.device.clear_failures();
    drop((memory, pool));
    test.allocator.empty_cache().expect("nothing fails any more");
    assert_eq!(test.stats().reserved_bytes.all.current, 0);
    assert_eq!(test.device.physical_bytes(), 0);
    test.assert_returns_everything_after(stream);
}

#[test]
fn a_wake_that_fails_releases_its_memory_if_one_wait_of_any_kind_ends() {
    let test = TestAllocator::elastic_on(HostConfig::default(), "");
    let (stream, pool, memory) = filled_with(&test, [3 * MIB, MIB / 2, 3 * MIB]);
    pool.sleep(Contents::Keep).expect("it can sleep");
    let asleep = test.device.physical_bytes();
    // Only the second wait for the device ends.
    for (call, nth) in
        [(Call::SetAccess, 1), (Call::Synchronize, 1), (Call::Synchronize, 2), (Call::SynchronizeDevice, 1)]
    {
        test.device.fail_next(call, nth, ErrorKind::Other);
    }
    pool.wake().expect_err("the driver refuses");
    assert_eq!(test.device.physical_bytes(), asleep);
    test.device.clear_failures();
    pool.wake().expect("nothing fails any more");
    assert_filled(&test, &memory, &stream);
}

#[test]
fn a_device_that_cannot_copy_sleeps_without_contents() {
    let test = TestAllocator::elastic_on(HostConfig::default().without(Feature::Transfer), "");
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let memory = pool.allocate(8 * MIB, &stream).expect("there is room");
    pool.sleep(Contents::Discard).expect("nothing is copied");
    assert_eq!(pool.wake().expect("nothing is copied"), 8 * MIB);
    test.assert_returns_everything_after((memory, pool, stream));
}

//! Checkpoints of memory that other streams use.

use std::sync::{Arc, Mutex};

use cachette::TraceAction;
use cachette::hal::{Call, CaptureMode, Device, DevicePtr};
use cachette::pool::PoolProblem;
use cachette_hal_host::Hold;

use crate::checkpoints::{CONFIGS, problem, raw};
use crate::fixture::threads::{PATIENCE, is_waiting, start};
use crate::fixture::{MIB, Pool, Stream, TestAllocator, let_pass};

/// Memory of 12 MiB in a pool, known by its address, that another stream is held from filling with ones.
fn used_block(test: &TestAllocator, pool: &Pool, stream: &Stream, side: &Stream) -> (u64, Hold) {
    let address = raw(test, pool, 12 * MIB, stream);
    (address, use_elsewhere(test, address, 12 * MIB, side))
}

/// Lets another stream fill memory with ones, and holds the stream before it does.
fn use_elsewhere(test: &TestAllocator, address: u64, bytes: u64, side: &Stream) -> Hold {
    let hold = test.hold(side);
    let transfer = test.device.transfer().expect("the host device copies");
    let at = DevicePtr::new(address).expect("the memory has an address");
    // SAFETY: 1. the stream lives. 3. the segment of the memory stays.
    unsafe { transfer.fill(at, 1, bytes, side.handle()) }.expect("a fill is queued");
    // SAFETY: 1. 2. the stream is this allocator's own.
    unsafe { test.allocator.record_stream_raw(address, side.handle()) }.expect("the memory is allocated");
    hold
}

#[test]
fn p15_a_block_in_use_elsewhere_is_freed_behind_that_use() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
        drop(pool.allocate(12 * MIB, &stream).unwrap());
        let empty = pool.checkpoint().unwrap();
        let (address, hold) = used_block(&test, &pool, &stream, &side);
        assert_eq!(pool.restore(&empty).unwrap().freed, [address]);
        assert!(pool.check_live_allocations(&[]));
        let next = pool.allocate(12 * MIB, &stream).unwrap();
        test.fill(&next, 2, &stream);
        stream.synchronize().unwrap();
        let_pass(hold, &side);
        assert_eq!(test.content(&next, &stream), Some(2), "{config}");
        drop(next);
        drop(pool.allocate(512, &stream).unwrap());
        assert_eq!(test.stats().active.all.current, 0, "{config}");
        test.allocator.check().unwrap();
    }
}

#[test]
fn p15_a_block_in_use_elsewhere_stays_if_it_was_saved() {
    let test = TestAllocator::new();
    let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
    let (address, hold) = used_block(&test, &pool, &stream, &side);
    let saved = pool.checkpoint().unwrap();
    let restored = pool.restore(&saved).unwrap();
    assert_eq!((restored.freed, restored.allocated), (vec![address], vec![address]));
    // The recorded use is still waited for.
    test.allocator.free_raw(address).unwrap();
    assert_eq!(test.stats().active.all.current, 1);
    let_pass(hold, &side);
    drop(pool.allocate(512, &stream).unwrap());
    assert_eq!(test.stats().active.all.current, 0);
}

#[test]
fn p15_a_saved_place_behind_a_guard_is_refused() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
        let owned = pool.allocate(12 * MIB, &stream).unwrap();
        let address = owned.address();
        let saved = pool.checkpoint().unwrap();
        let hold = test.hold(&side);
        test.fill(&owned, 1, &side);
        owned.release_after(&[&side]).unwrap();
        assert_eq!(problem(pool.restore(&saved)), PoolProblem::Changed { address });
        assert!(pool.check_live_allocations(&[]), "{config}: nothing has changed");
        hold.release();
    }
}

#[test]
fn p15_a_place_beside_a_block_in_use_elsewhere_comes_back() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
        let used = raw(&test, &pool, 6 * MIB, &stream);
        let hold = use_elsewhere(&test, used, 6 * MIB, &side);
        let beside = raw(&test, &pool, 6 * MIB, &stream);
        assert_eq!(beside, used + 6 * MIB, "{config}: they lie side by side");
        let saved = pool.checkpoint().unwrap();
        test.allocator.free_raw(beside).unwrap();
        let restored = pool.restore(&saved).unwrap();
        assert_eq!(restored.allocated, [used, beside], "{config}");
        assert!(pool.check_live_allocations(&[used, beside]), "{config}");
        let_pass(hold, &side);
    }
}

#[test]
fn p15_every_part_of_a_saved_place_is_looked_at() {
    let test = TestAllocator::new();
    let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
    let whole = raw(&test, &pool, 12 * MIB, &stream);
    let saved = pool.checkpoint().unwrap();
    test.allocator.free_raw(whole).unwrap();
    let front = raw(&test, &pool, 6 * MIB, &stream);
    let back = raw(&test, &pool, 6 * MIB, &stream);
    let hold = use_elsewhere(&test, back, 6 * MIB, &side);
    assert_eq!((front, back), (whole, whole + 6 * MIB));
    test.allocator.free_raw(front).unwrap();
    assert_eq!(problem(pool.restore(&saved)), PoolProblem::Waiting { address: back });
    assert!(pool.check_live_allocations(&[back]), "nothing has changed");
    let_pass(hold, &side);
}

#[test]
fn p16_trackers_hear_of_every_free_of_a_restore() {
    let test = TestAllocator::new();
    let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
    let empty = pool.checkpoint().unwrap();
    let plain = raw(&test, &pool, 6 * MIB, &stream);
    let (used, hold) = used_block(&test, &pool, &stream, &side);
    let seen: Arc<Mutex<Vec<(TraceAction, u64)>>> = Arc::default();
    let log = Arc::clone(&seen);
    test.allocator.track(move |event| log.lock().unwrap().push((event.action, event.address)));
    pool.restore(&empty).unwrap();
    let told = seen.lock().unwrap().clone();
    for address in [plain, used] {
        assert!(told.contains(&(TraceAction::FreeRequested, address)));
    }
    assert!(told.contains(&(TraceAction::FreeCompleted, plain)));
    assert!(!told.contains(&(TraceAction::FreeCompleted, used)), "it waits");
    let_pass(hold, &side);
}

#[test]
fn p15_neighbours_in_use_elsewhere_are_not_what_changed() {
    let test = TestAllocator::new();
    let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
    let before = raw(&test, &pool, 6 * MIB, &stream);
    let owned = pool.allocate(6 * MIB, &stream).unwrap();
    let after = raw(&test, &pool, 6 * MIB, &stream);
    let address = owned.address();
    let saved = pool.checkpoint().unwrap();
    owned.release_after(&[&side]).unwrap();
    for neighbour in [before, after] {
        let hold = use_elsewhere(&test, neighbour, 6 * MIB, &side);
        assert_eq!(problem(pool.restore(&saved)), PoolProblem::Changed { address });
        let_pass(hold, &side);
    }
}

#[test]
fn p15_a_block_that_comes_back_beside_guarded_memory_can_be_freed() {
    for config in CONFIGS {
        let (test, [stream, side]) = TestAllocator::with(config).with_streams();
        let pool = test.allocator.create_pool();
        let address = raw(&test, &pool, 4 * MIB, &stream);
        let saved = pool.checkpoint().unwrap();
        let _hold = test.hold(&side);
        pool.allocate(4 * MIB, &stream).unwrap().release_after(&[&side]).unwrap();
        pool.restore(&saved).unwrap();
        test.allocator.free_raw(address).expect(config);
        test.allocator.check().unwrap();
    }
}

#[test]
fn p15_memory_that_a_restore_allocates_is_written_behind_the_reads_of_other_streams() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, side, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
        let address = raw(&test, &pool, 4 * MIB, &stream);
        let hold = use_elsewhere(&test, address, 4 * MIB, &side);
        let saved = pool.checkpoint().unwrap();
        let restored = pool.restore(&saved).unwrap();
        assert_eq!((&*restored.freed, &*restored.allocated), (&[address][..], &[address][..]));
        // The fill of the next owner comes after that of the former, which is held.
        let transfer = test.device.transfer().unwrap();
        let at = DevicePtr::new(address).unwrap();
        // SAFETY: 1. the stream lives. 3. the memory is allocated.
        unsafe { transfer.fill(at, 2, 4 * MIB, stream.handle()) }.unwrap();
        let waits = stream.clone();
        let waiting = start(move || waits.synchronize());
        assert!(is_waiting(&waiting), "{config}: the write overtakes");
        hold.release();
        waiting.recv_timeout(PATIENCE).unwrap().unwrap();
    }
}

#[test]
fn p15_a_restore_waits_on_the_host_for_uses_of_another_allocators_stream() {
    let test = TestAllocator::new();
    let foreign = test.beside("").stream();
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let memory = pool.allocate(4 * MIB, &stream).unwrap();
    let hold = test.hold(&foreign);
    test.fill(&memory, 1, &foreign);
    memory.record_stream(&foreign);
    let _ = memory.into_raw();
    let saved = pool.checkpoint().unwrap();
    let restoring = start(move || pool.restore(&saved).map(drop));
    assert!(is_waiting(&restoring));
    hold.release();
    restoring.recv_timeout(PATIENCE).unwrap().unwrap();
}

#[test]
fn p15_a_restore_to_a_captured_stream_waits_on_the_host_for_work_outside() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let address = raw(&test, &pool, 4 * MIB, &stream);
    let hold = use_elsewhere(&test, address, 4 * MIB, &side);
    let saved = pool.checkpoint().unwrap();
    test.begin_unannounced(&stream, CaptureMode::Relaxed);
    let restoring = start(move || pool.restore(&saved).map(|_| pool));
    assert!(is_waiting(&restoring), "the captured stream cannot wait on the device");
    hold.release();
    let pool = restoring.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(test.is_captured(&stream), "the capture is whole");
    test.end_unannounced(&stream);
    drop(pool);
}

#[test]
fn p15_a_restore_inside_a_capture_orders_its_streams_in_the_graph() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let address = raw(&test, &pool, 4 * MIB, &stream);
    drop(use_elsewhere(&test, address, 4 * MIB, &side));
    let saved = pool.checkpoint().unwrap();
    test.begin_unannounced(&stream, CaptureMode::Relaxed);
    test.follow(&side, &stream);
    let ordered = test.calls_of(Call::StreamWait, || drop(pool.restore(&saved).unwrap()));
    assert_eq!(ordered, 1, "both streams are in one capture");
    test.end_unannounced(&stream);
}

#[test]
fn p15_a_place_whose_parts_were_freed_last_comes_back() {
    for config in CONFIGS {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        let pool = test.allocator.create_pool();
        let address = raw(&test, &pool, 4 * MIB, &stream);
        let saved = pool.checkpoint().unwrap();
        test.allocator.free_raw(address).unwrap();
        let parts = [(); 2].map(|()| raw(&test, &pool, 2 * MIB, &stream));
        for part in parts {
            test.allocator.free_raw(part).unwrap();
        }
        assert_eq!(*pool.restore(&saved).unwrap().allocated, [address], "{config}");
        test.allocator.check().unwrap();
    }
}

//! Checkpoints that one thread restores while another uses the pool.

use std::sync::Arc;

use cachette::hal::{Call, ErrorKind};
use cachette::pool::{Checkpoint, PoolProblem};
use cachette::sleep::Contents;
use cachette_hal_host::HostConfig;

use crate::checkpoints::{CONFIGS, problem, raw};
use crate::fixture::{ELASTIC, MIB, Pool, Stream, TestAllocator};

/// Leaves a pending block, so that a restore asks about `stream` and `side`.
fn leave_pending(pool: &Pool, stream: &Stream, side: &Stream) {
    let memory = pool.allocate(4 * MIB, stream).expect("there is room");
    memory.record_stream(side);
    drop(memory);
    side.synchronize().expect("nothing fails");
}

/// A pool, its checkpoint, and the address of a saved block of 1 MiB that the first stream has freed since.
///
/// The neighbour of the block keeps its chunk. A restore checks the first stream's blocks before it asks about the
/// second stream.
fn saved_and_freed(test: &TestAllocator, [one, two, side]: &[Stream; 3]) -> (Arc<Pool>, Checkpoint, u64) {
    let pool = Arc::new(test.allocator.create_pool());
    let [freed, _neighbour] = [one; 2].map(|stream| raw(test, &pool, MIB, stream));
    raw(test, &pool, 2 * MIB, two);
    let saved = pool.checkpoint().expect("the pool is awake");
    leave_pending(&pool, two, side);
    test.allocator.free_raw(freed).expect("it is allocated");
    (pool, saved, freed)
}

#[test]
fn p15_memory_shared_during_a_restore_is_not_reused_while_it_is_shared() {
    for config in CONFIGS {
        let (test, hook) = TestAllocator::hooked(HostConfig::default(), config);
        let [one, two, side] = test.streams();
        let pool = test.allocator.create_pool();
        let _kept = [&one, &two].map(|stream| raw(&test, &pool, 2 * MIB, stream));
        let saved = pool.checkpoint().unwrap();
        let late = raw(&test, &pool, 4 * MIB, &one);
        leave_pending(&pool, &two, &side);
        let also = test.allocator.clone();
        let share = hook.start(Call::Poll, None, move || also.share_raw(late));
        let restored = pool.restore(&saved).unwrap();
        assert!(restored.freed.contains(&late), "{config}");
        let shared = share.result().unwrap();
        let next = pool.allocate(4 * MIB, &one).unwrap();
        assert_ne!(next.address(), late, "{config}");
        drop(next);
        let active = test.stats().active_bytes.all.current;
        drop(shared);
        assert_eq!(active - test.stats().active_bytes.all.current, 4 * MIB, "{config}: the share was the last use");
        test.allocator.check().unwrap();
    }
}

#[test]
fn p15_a_restore_reports_a_place_that_another_thread_uses_meanwhile() {
    for config in CONFIGS {
        let (test, hook) = TestAllocator::hooked(HostConfig::default(), config);
        let streams = test.streams();
        let (pool, saved, address) = saved_and_freed(&test, &streams);
        let [one, two, _side] = streams;
        let also = Arc::clone(&pool);
        let taken = hook.start(Call::CaptureStatus, Some(two.handle()), move || also.allocate(MIB, &one));
        let restored = pool.restore(&saved);
        let taken = taken.result().unwrap();
        assert_eq!(taken.address(), address, "{config}");
        assert_eq!(problem(restored), PoolProblem::Changed { address }, "{config}");
        test.allocator.check().unwrap();
    }
}

#[test]
fn p15_a_pool_falls_asleep_after_a_restore_and_not_during_it() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), ELASTIC);
    let streams = test.streams();
    let (pool, saved, freed) = saved_and_freed(&test, &streams);
    let (also, live) = (Arc::clone(&pool), [pool.live_allocations(), vec![freed]].concat());
    let sleep = move || (also.sleep(Contents::Keep).map(drop), also.check_live_allocations(&live));
    let slept = hook.start(Call::CaptureStatus, Some(streams[1].handle()), sleep);
    assert!(pool.restore(&saved).unwrap().allocated.contains(&freed));
    assert_eq!(slept.result(), (Ok(()), true), "the sleep finds the restored state");
    pool.wake().unwrap();
    test.assert_elastic_sound();
}

#[test]
fn p15_a_restore_leaves_a_request_its_block_while_its_stream_is_made_to_wait() {
    for config in CONFIGS {
        let (test, hook) = TestAllocator::hooked(HostConfig::default(), config);
        let [stream, side] = test.streams();
        let pool = Arc::new(test.allocator.create_pool());
        let _kept = raw(&test, &pool, MIB, &stream);
        let saved = pool.checkpoint().unwrap();
        let memory = pool.allocate(4 * MIB, &stream).unwrap();
        let address = memory.address();
        memory.release_after(&[&side]).unwrap();
        let (also, other) = (Arc::clone(&pool), stream.clone());
        let restore = hook.start(Call::StreamWait, Some(stream.handle()), move || {
            let restored = also.restore(&saved);
            (restored, also.allocate(4 * MIB, &other).unwrap())
        });
        test.device.fail_next(Call::StreamWait, 1, ErrorKind::Other);
        let inside = pool.enter(&stream).unwrap();
        // SAFETY: the stream is the test's.
        let failed = unsafe { test.allocator.allocate_raw(4 * MIB, stream.handle()) };
        drop(inside);
        assert!(failed.is_err(), "{config}");
        let (restored, second) = restore.result();
        assert_eq!(problem(restored), PoolProblem::Owned { address }, "{config}");
        let third = pool.allocate(4 * MIB, &stream).unwrap();
        assert_ne!(third.address(), second.address(), "{config}: two owners");
        test.allocator.check().unwrap();
    }
}

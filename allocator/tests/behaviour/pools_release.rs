//! The memory of a pool after the pool is emptied or released, and after the default pool is emptied.

use std::sync::Barrier;
use std::thread;

use cachette::PoolOptions;
use cachette::hal::{Call, Device, ErrorKind};
use cachette::pool::PoolStats;

use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{KIB, MIB, Pool, TestAllocator};

fn segments(pool: &Pool) -> (u64, u64) {
    let PoolStats { segments, reserved_bytes, .. } = pool.stats();
    (segments, reserved_bytes)
}

#[test]
fn p6_unused_memory_goes_back_with_the_last_user_after_the_work_that_is_queued() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let pool = test.allocator.create_pool();
        let second = test.allocator.open_pool(pool.id()).expect("it is there");
        let memory = pool.allocate(12 * MIB, &stream).expect("there is room");
        test.fill(&memory, 3, &stream);
        drop(memory);
        drop(pool);
        assert_eq!(test.device.physical_bytes(), 12 * MIB);
        drop(second);
        assert_eq!(test.device.physical_bytes(), 0);
        test.device.synchronize_device().expect("nothing was touched that is gone");
        test.assert_sound();
    }
}

#[test]
fn p6_live_memory_keeps_its_segment_until_the_cache_is_emptied() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let pool = test.allocator.create_pool();
        let kept = pool.allocate(12 * MIB, &stream).expect("there is room");
        test.fill(&kept, 9, &stream);
        drop(pool.allocate(20 * MIB, &stream).expect("there is room"));
        drop(pool);
        assert_eq!(test.device.physical_bytes(), 12 * MIB);
        assert_eq!(test.content(&kept, &stream), Some(9));
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(test.content(&kept, &stream), Some(9));
        drop(kept);
        let freed = test.allocator.empty_cache().expect("nothing fails");
        assert_eq!((freed, test.device.physical_bytes()), (12 * MIB, 0));
        test.assert_returns_everything_after(stream);
    }
}

#[test]
fn p6_memory_outlives_pool_and_allocator() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    let kept = pool.allocate(12 * MIB, &stream).expect("there is room");
    test.fill(&kept, 5, &stream);
    assert_eq!(test.content(&kept, &stream), Some(5));
    let TestAllocator { device, allocator, .. } = test;
    drop((pool, allocator, stream));
    assert_eq!(device.physical_bytes(), 12 * MIB);
    drop(kept);
    assert_eq!(device.physical_bytes(), 0);
    assert_eq!(device.live().streams, 0);
}

#[test]
fn p6_memory_of_a_released_pool_is_freed_for_other_requests() {
    let (test, [stream]) = TestAllocator::of(32 * MIB, "").with_streams();
    let pool = test.allocator.create_pool();
    let kept = pool.allocate(12 * MIB, &stream).expect("there is room");
    drop(pool);
    drop(kept);
    let memory = test.allocate(24 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 24 * MIB);
    drop(memory);
    test.assert_sound();
}

#[test]
fn p8_p11_one_pool_or_the_default_one_is_emptied_and_no_other() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let [one, other] = [test.allocator.create_pool(), test.allocator.create_pool()];
        let kept = one.allocate(12 * MIB, &stream).expect("there is room");
        drop(one.allocate(20 * MIB, &stream).expect("there is room"));
        drop(other.allocate(14 * MIB, &stream).expect("there is room"));
        drop(test.allocate(16 * MIB, &stream));
        let inside = one.enter(&stream).expect("it is there");
        assert_eq!(one.empty_cache().expect("nothing fails"), 20 * MIB, "also inside of it");
        drop(inside);
        assert_eq!(one.empty_cache().expect("nothing fails"), 0);
        assert_eq!(test.device.physical_bytes(), 42 * MIB);
        assert_eq!(test.allocator.empty_cache().expect("nothing fails"), 16 * MIB);
        assert_eq!([&one, &other].map(segments), [(1, 12 * MIB), (1, 14 * MIB)], "pools in use keep theirs");
        drop(kept);
        test.assert_sound();
    }
}

#[test]
fn d12_an_entered_pool_does_not_prevent_emptying_the_cache() {
    let test = TestAllocator::new();
    let pool = test.allocator.create_pool();
    let (entered, emptied) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = test.stream();
            let _inside = pool.enter(&stream).expect("it is there");
            drop(test.allocate(12 * MIB, &stream));
            entered.wait();
            emptied.wait();
            assert_eq!(segments(&pool), (1, 12 * MIB));
        });
        let stream = test.stream();
        drop(test.allocate(14 * MIB, &stream));
        entered.wait();
        let freed = test.allocator.empty_cache().expect("nothing fails");
        emptied.wait();
        assert_eq!(freed, 14 * MIB);
    });
    test.assert_sound();
}

#[test]
fn d12_inside_a_pool_the_default_pool_is_still_emptied() {
    let (test, [stream]) = TestAllocator::of(32 * MIB, "").with_streams();
    let pool = test.allocator.create_pool();
    drop(test.allocate(14 * MIB, &stream));
    let _inside = pool.enter_all();
    assert_eq!(test.allocator.empty_cache().expect("nothing fails"), 14 * MIB);
    let outside = thread::scope(|scope| {
        let default = scope.spawn(|| test.allocate(20 * MIB, &stream));
        default.join().expect("no thread panics")
    });
    drop(outside);
    let led = test.allocate(30 * MIB, &stream);
    assert_eq!(segments(&pool), (1, 30 * MIB));
    drop(led);
}

#[test]
fn p6_a_thousand_pools_leave_nothing_behind() {
    for text in ["", "expandable_segments:True"] {
        let (test, [stream]) = TestAllocator::with(text).with_streams();
        let mut kept = None;
        let mut held = Vec::new();
        for round in 0..1000 {
            let pool = test.allocator.create_pool();
            let small = pool.allocate(4 * KIB, &stream).expect("there is room");
            let large = pool.allocate(3 * MIB, &stream).expect("there is room");
            drop(small);
            // Every other pool is released before its memory is.
            if round % 2 == 0 {
                drop((pool, large));
            } else {
                drop((large, pool));
            }
            test.allocator.empty_cache().expect("nothing fails");
            let now = (test.device.physical_bytes(), test.device.live());
            if round == 10 {
                kept = Some(now);
            } else if round > 10 {
                held.push(now);
            }
        }
        assert!(held.iter().all(|now| Some(*now) == kept), "{text}");
        assert_eq!(test.stats().reserved_bytes.all.current, 0);
        test.allocator.check().expect("every invariant holds");
        test.assert_returns_everything_after(stream);
    }
}

#[test]
fn p6_pools_of_every_kind_come_and_go_on_many_threads() {
    let test = TestAllocator::new();
    thread::scope(|scope| {
        for number in 0..4 {
            let test = &test;
            scope.spawn(move || {
                let stream = test.stream();
                for round in 0..100_u64 {
                    let options = PoolOptions::new().no_split(round % 3 == number % 3).use_on_oom(round % 2 == 0);
                    let pool = test.allocator.create_pool_with(options).expect("it is new");
                    let _inside = pool.enter_all();
                    let memory = test.allocate((1 + round % 7) * MIB, &stream);
                    assert!(pool.check_live_allocations(&[memory.address()]));
                    test.allocator.empty_cache().expect("nothing fails");
                }
            });
        }
    });
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.physical_bytes(), 0);
    test.assert_sound();
}

/// Graphs that other code captures contain addresses of the pool's memory.
#[test]
fn p6_memory_of_a_kept_pool_stays_until_its_last_user_is_gone() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let pool = test.allocator.create_pool();
        pool.keep();
        drop(pool.allocate(12 * MIB, &stream).expect("there is room"));
        assert_eq!(test.allocator.empty_cache(), Ok(0));
        assert_eq!(pool.empty_cache(), Ok(0));
        assert_eq!(test.device.physical_bytes(), 12 * MIB);
        drop(pool);
        assert_eq!(test.device.physical_bytes(), 0);
        test.assert_sound();
    }
}

/// Graphs that other code launches run in streams that are unknown to the pool.
#[test]
fn p6_release_waits_for_launches_by_other_code() {
    for test in ["", "expandable_segments:True"].map(TestAllocator::with) {
        let [stream, other] = test.streams();
        let pool = test.allocator.create_pool();
        drop(pool.allocate(12 * MIB, &stream).expect("there is room"));
        let hold = test.hold(&other);
        pool.mark_external_graph_use();
        let gone = start(move || drop(pool));
        assert!(is_waiting(&gone));
        assert_eq!(test.device.physical_bytes(), 12 * MIB);
        drop(hold);
        gone.recv().expect("it was waited for");
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(test.device.physical_bytes(), 0);
        test.assert_sound();
    }
}

#[test]
fn p6_a_wait_that_failed_does_not_stand_for_later_launches() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    drop(pool.allocate(12 * MIB, &stream).expect("there is room"));
    pool.mark_external_graph_use();
    test.device.fail_next(Call::Wait, 1, ErrorKind::Other);
    assert!(pool.empty_cache().is_err());
    let hold = test.hold(&other);
    let gone = start(move || drop(pool));
    assert!(is_waiting(&gone));
    drop(hold);
    gone.recv().expect("it was waited for");
    assert_eq!(test.device.physical_bytes(), 0);
}

#[test]
fn p6_a_pool_without_users_and_memory_in_use_is_gone() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let pool = test.allocator.create_pool();
    let memory = pool.allocate(12 * MIB, &stream).expect("there is room");
    test.fill(&memory, 3, &stream);
    drop(memory);
    let id = pool.id();
    drop(pool);
    assert!(test.device.physical_bytes() > 0, "the stream has not passed the work in the chunks");
    assert!(test.allocator.open_pool(id).is_err());
    assert_eq!(test.device.physical_bytes(), 0);
    let again = test.allocator.create_pool_with(PoolOptions::default().id(id));
    again.expect("the name is free again");
}

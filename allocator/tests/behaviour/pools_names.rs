//! Pools: names, use counts, and errors about pools that do not exist.

use std::collections::HashSet;
use std::thread;

use cachette::pool::PoolProblem;
use cachette::{Error, PoolId, PoolOptions};

use crate::fixture::{MIB, Pool, TestAllocator};

/// The problem, if there is one.
fn problem<T>(result: Result<T, Error>) -> Option<(PoolId, PoolProblem)> {
    match result.err() {
        Some(Error::Pool { pool, why }) => Some((pool, why)),
        _ => None,
    }
}

#[test]
fn p1_a_name_says_who_made_the_pool() {
    let test = TestAllocator::new();
    let (made, captures) = (test.allocator.create_pool(), test.allocator.create_capture_pool());
    let (made, captures) = (made.id(), captures.id());
    assert_eq!((made.capture, captures.user), (0, 0));
    assert!(made.user > 0 && captures.capture > 0);
    assert_eq!(made.pair(), (0, made.user));
    assert_eq!(captures.pair(), (captures.capture, 0));
    assert_eq!(PoolId::DEFAULT.pair(), (0, 0));
    assert_eq!(PoolId { capture: 0, user: 7 }.to_string(), "{0, 7}");
    assert_eq!(PoolId::DEFAULT.to_string(), "{0, 0}");
}

#[test]
fn p1_no_name_comes_twice_on_any_thread_or_allocator() {
    let (one, other) = (TestAllocator::new(), TestAllocator::new());
    let make = |test: &TestAllocator| {
        let names = (0..50).flat_map(|_| {
            let pools = [test.allocator.create_pool(), test.allocator.create_capture_pool()];
            let handle = PoolId::new();
            [pools[0].id(), pools[1].id(), handle]
        });
        names.collect::<Vec<_>>()
    };
    let names: Vec<PoolId> = thread::scope(|scope| {
        let threads = [&one, &one, &other, &other].map(|test| scope.spawn(move || make(test)));
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let different: HashSet<_> = names.iter().collect();
    assert_eq!((different.len(), names.len()), (600, 600));
    assert!(!different.contains(&PoolId::DEFAULT));
}

#[test]
fn p1_a_handle_is_a_name_and_no_pool() {
    let test = TestAllocator::new();
    let handle = PoolId::new();
    assert_eq!(handle.capture, 0);
    let unknown = Some((handle, PoolProblem::Unknown));
    assert_eq!(problem(test.allocator.open_pool(handle)), unknown);
    let options = PoolOptions::new().id(handle);
    let pool = test.allocator.create_pool_with(options).expect("the name is free");
    assert_eq!((pool.id(), pool.use_count()), (handle, 1));
}

#[test]
fn p1_an_id_chosen_by_the_caller_is_not_generated_again() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let with_options = || {
        let made = test.allocator.create_pool_with(PoolOptions::new());
        made.expect("another name is free")
    };
    for make in [&|| test.allocator.create_pool(), &with_options] as [&dyn Fn() -> Pool; 2] {
        let mut ahead = PoolId::new();
        ahead.user += 20;
        let options = PoolOptions::new().id(ahead);
        let taken = test.allocator.create_pool_with(options);
        let taken = taken.expect("the name is free");
        let memory = taken.allocate(MIB, &stream).expect("there is room");
        let pools: Vec<Pool> = (0..60).map(|_| make()).collect();
        assert!(pools.iter().all(|pool| pool.id() != ahead));
        assert_eq!(taken.stats().allocations, 1);
        drop((memory, pools));
    }
}

#[test]
fn p1_the_default_pool_cannot_be_created_or_opened() {
    let test = TestAllocator::new();
    let options = PoolOptions::new().id(PoolId::DEFAULT);
    let made = test.allocator.create_pool_with(options);
    assert_eq!(problem(made), Some((PoolId::DEFAULT, PoolProblem::Exists)));
    let opened = test.allocator.open_pool(PoolId::DEFAULT);
    assert_eq!(problem(opened), Some((PoolId::DEFAULT, PoolProblem::Unknown)));
}

#[test]
fn p2_owners_are_counted_and_a_name_is_used_once_at_a_time() {
    let test = TestAllocator::new();
    let pool = test.allocator.create_pool();
    let again = |id| test.allocator.create_pool_with(PoolOptions::new().id(id));
    let id = pool.id();
    assert_eq!(problem(again(id)), Some((id, PoolProblem::Exists)));
    assert_eq!(pool.use_count(), 1);
    let second = test.allocator.open_pool(id).expect("it is there");
    assert_eq!((pool.use_count(), second.use_count()), (2, 2));
    drop(pool);
    assert_eq!(second.use_count(), 1);
    drop(second);
    assert!(again(id).is_ok());
}

#[test]
fn p2_a_pool_that_is_gone_is_an_error_that_says_what_to_do() {
    let test = TestAllocator::new();
    let id = test.allocator.create_pool().id();
    let gone = test.allocator.open_pool(id).expect_err("it is gone");
    let message = gone.to_string();
    assert!(message.contains(&id.to_string()) && message.contains("create one"), "{message}");
    assert_eq!(problem::<Pool>(Err(gone)), Some((id, PoolProblem::Unknown)));
    let elsewhere = TestAllocator::new();
    let pool = test.allocator.create_pool();
    assert!(elsewhere.allocator.open_pool(pool.id()).is_err());
}

#[test]
fn p2_a_released_pool_with_live_memory_can_be_opened_again() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    let id = pool.id();
    let memory = pool.allocate(MIB, &stream).expect("there is room");
    drop(pool);
    let again = test.allocator.open_pool(id).expect("its memory lives");
    assert_eq!((again.use_count(), again.stats().allocations), (1, 1));
    let more = again.allocate(MIB, &stream).expect("there is room");
    assert_eq!(again.stats().segments, 1, "it went on with the segment it had");
    drop((memory, more));
    test.assert_sound();
    drop(again);
    assert_eq!(test.device.physical_bytes(), 0);
    assert!(test.allocator.open_pool(id).is_err());
}

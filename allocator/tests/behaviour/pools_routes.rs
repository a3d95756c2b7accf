//! Which requests a pool serves: by guards of threads, by stream, by a function, or all.

use std::sync::{Arc, Mutex};
use std::thread;

use cachette::Error;
use cachette::hal::CaptureMode;
use cachette::pool::{Filter, PoolProblem};

use crate::fixture::{Allocation, MIB, Pool, Stream, TestAllocator};

/// Where requests go, by what they change.
fn served_by(pool: &Pool, request: impl FnOnce() -> Allocation) -> bool {
    let before = pool.stats().allocations;
    let memory = request();
    let served = pool.stats().allocations == before + 1;
    drop(memory);
    served
}

/// Whether a request of this thread for `stream` is served by `pool`.
fn serves(pool: &Pool, test: &TestAllocator, stream: &Stream) -> bool {
    served_by(pool, || test.allocate(MIB, stream))
}

fn why<T>(result: Result<T, Error>) -> Option<PoolProblem> {
    match result.err() {
        Some(Error::Pool { why, .. }) => Some(why),
        _ => None,
    }
}

#[test]
fn p4_a_guard_leads_its_stream_and_no_other() {
    for test in TestAllocator::both("") {
        let [stream, other] = test.streams();
        let pool = test.allocator.create_pool();
        let inside = pool.enter(&stream).expect("it is there");
        assert!(serves(&pool, &test, &stream));
        assert!(!serves(&pool, &test, &other));
        drop(inside);
        assert!(!serves(&pool, &test, &stream));
        test.assert_sound();
    }
}

#[test]
fn p4_a_guard_for_every_stream_includes_the_default_one() {
    let test = TestAllocator::new();
    let streams = [test.stream(), test.stream(), test.allocator.default_stream().expect("there is one")];
    let pool = test.allocator.create_pool();
    let inside = pool.enter_all();
    assert!(streams.iter().all(|stream| serves(&pool, &test, stream)));
    let late = test.stream();
    assert!(serves(&pool, &test, &late), "a stream made later too");
    thread::scope(|scope| {
        let elsewhere = scope.spawn(|| serves(&pool, &test, &late));
        assert!(!elsewhere.join().expect("no thread panics"), "other threads keep the default pool");
    });
    drop(inside);
    assert!(!serves(&pool, &test, &late));
}

#[test]
fn p7_guards_nest_and_the_innermost_serves() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let [outer, inner] = [test.allocator.create_pool(), test.allocator.create_pool()];
    let outer_guard = outer.enter(&stream).expect("it is there");
    {
        let _inside = inner.enter(&stream).expect("it is there");
        assert!(serves(&inner, &test, &stream));
        {
            let _again = outer.enter(&stream).expect("it is there");
            assert!(serves(&outer, &test, &stream));
        }
        assert!(serves(&inner, &test, &stream));
    }
    assert!(serves(&outer, &test, &stream));
    drop(outer_guard);
    assert!(!serves(&outer, &test, &stream) && !serves(&inner, &test, &stream));
    let other = test.stream();
    let _outer = outer.enter_all();
    let _inner = inner.enter(&other).expect("it is there");
    assert!(serves(&outer, &test, &stream), "an inner guard of another stream hides nothing");
    assert!(serves(&inner, &test, &other));
}

#[test]
fn p7_guards_may_go_in_any_order() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let [first, second, third] = [(); 3].map(|()| test.allocator.create_pool());
    let one = first.enter(&stream).expect("it is the test's");
    let two = second.enter(&stream).expect("it is the test's");
    let three = third.enter(&stream).expect("it is the test's");
    drop(two);
    assert!(serves(&third, &test, &stream));
    drop(three);
    assert!(serves(&first, &test, &stream));
    drop(one);
    assert!(!serves(&first, &test, &stream));
    assert_eq!([&first, &second, &third].map(Pool::use_count), [1; 3]);
}

#[test]
fn p7_guards_of_two_allocators_do_not_mix() {
    let (one, other) = (TestAllocator::new(), TestAllocator::new());
    let (of_one, of_other) = (one.allocator.create_pool(), other.allocator.create_pool());
    let streams = [one.stream(), other.stream()];
    let _in_one = of_one.enter_all();
    let in_other = of_other.enter_all();
    assert!(serves(&of_one, &one, &streams[0]));
    assert!(serves(&of_other, &other, &streams[1]));
    drop(in_other);
    assert!(serves(&of_one, &one, &streams[0]));
    assert!(!serves(&of_other, &other, &streams[1]));
}

#[test]
fn p4_p8_a_stream_of_another_allocator_is_refused() {
    let (test, elsewhere) = (TestAllocator::new(), TestAllocator::new());
    let (own, foreign) = (test.stream(), elsewhere.stream());
    let [pool, graphs] = [test.allocator.create_pool(), test.allocator.create_capture_pool()];
    assert!(matches!(pool.enter(&foreign), Err(Error::ForeignStream)));
    assert!(matches!(pool.allocate(MIB, &foreign), Err(Error::ForeignStream)));
    assert_eq!(pool.use_count(), 1);
    assert!(matches!(graphs.begin_capture(&foreign, CaptureMode::Global), Err(Error::ForeignStream)));
    own.synchronize().unwrap();
    assert!(!test.is_captured(&own) && !elsewhere.is_captured(&foreign));
}

#[test]
fn p7_raw_memory_is_led_as_well() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    let led = {
        let _inside = pool.enter(&stream).expect("it is there");
        test.allocate_raw(MIB, &stream)
    };
    let outside = test.allocate_raw(MIB, &stream);
    assert!(pool.check_live_allocations(&[led]));
    test.allocator.begin_allocate_to_pool(pool.id(), Filter::All).expect("it begins");
    let routed = test.allocate_raw(MIB, &stream);
    assert!(pool.check_live_allocations(&[led, routed]));
    test.allocator.end_allocate_to_pool(pool.id()).expect("it was begun");
    for address in [led, outside, routed] {
        test.allocator.free_raw(address).expect("it is allocated");
    }
    assert!(pool.check_live_allocations(&[]));
    test.assert_sound();
}

#[test]
fn p3_a_route_leads_every_thread_until_it_is_ended() {
    for test in TestAllocator::both("") {
        let [stream, other] = test.streams();
        let pool = test.allocator.create_pool();
        let warm = test.allocate(MIB, &stream);
        drop(warm);
        test.allocator.begin_allocate_to_pool(pool.id(), Filter::All).expect("it begins");
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| serves(&pool, &test, &stream));
            assert!(elsewhere.join().expect("no thread panics"));
        });
        let late = test.stream();
        assert!([&stream, &other, &late].iter().all(|stream| serves(&pool, &test, stream)));
        test.allocator.end_allocate_to_pool(pool.id()).expect("it was begun");
        assert!(![&stream, &other, &late].iter().any(|stream| serves(&pool, &test, stream)));
        test.assert_sound();
    }
}

#[test]
fn p4_a_route_by_stream_leads_that_stream_alone() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let [by_stream, by_all] = [test.allocator.create_pool(), test.allocator.create_pool()];
    let begin = |pool: &Pool, filter| test.allocator.begin_allocate_to_pool(pool.id(), filter);
    begin(&by_all, Filter::All).expect("it begins");
    begin(&by_stream, Filter::Stream(stream.handle())).expect("it begins");
    assert!(serves(&by_stream, &test, &stream), "the route begun last");
    assert!(serves(&by_all, &test, &other));
    test.allocator.end_allocate_to_pool(by_stream.id()).expect("it was begun");
    assert!(serves(&by_all, &test, &stream));
    test.allocator.end_allocate_to_pool(by_all.id()).expect("it was begun");
}

#[test]
fn p4_a_guard_comes_before_a_route() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let [routed, entered] = [test.allocator.create_pool(), test.allocator.create_pool()];
    let inside = entered.enter(&stream).expect("it is there");
    test.allocator.begin_allocate_to_pool(routed.id(), Filter::All).expect("it begins");
    assert!(serves(&entered, &test, &stream));
    drop(inside);
    assert!(serves(&routed, &test, &stream));
}

#[test]
fn p3_p5_a_route_is_begun_once_and_ended_once() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    let id = pool.id();
    let ended = test.allocator.end_allocate_to_pool(id);
    assert_eq!(why(ended), Some(PoolProblem::NotBegun));
    test.allocator.begin_allocate_to_pool(id, Filter::All).expect("it begins");
    let again = test.allocator.begin_allocate_to_pool(id, Filter::Stream(stream.handle()));
    assert_eq!(why(again), Some(PoolProblem::Begun));
    assert!(serves(&pool, &test, &stream));
    test.allocator.end_allocate_to_pool(id).expect("it was begun");
    assert_eq!(why(test.allocator.end_allocate_to_pool(id)), Some(PoolProblem::NotBegun));
    let unknown = cachette::PoolId::new();
    let begun = test.allocator.begin_allocate_to_pool(unknown, Filter::All);
    assert_eq!(why(begun), Some(PoolProblem::Unknown));
    assert!(!serves(&pool, &test, &stream));
}

#[test]
fn p3_a_route_is_a_user_of_its_pool() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    let id = pool.id();
    test.allocator.begin_allocate_to_pool(id, Filter::All).expect("it begins");
    assert_eq!(pool.use_count(), 2);
    drop(pool);
    let led = test.allocate(MIB, &stream);
    let opened = test.allocator.open_pool(id).expect("the route uses it");
    let other = test.allocator.create_pool();
    assert!(opened.check_live_allocations(&[led.address()]));
    let apart = other.allocate(MIB, &stream).expect("there is room");
    assert!(other.check_live_allocations(&[apart.address()]));
    drop(opened);
    test.allocator.end_allocate_to_pool(id).expect("it was begun");
    drop((led, apart, other));
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.physical_bytes(), 0);
    assert!(test.allocator.open_pool(id).is_err());
}

#[test]
fn p4_a_route_by_a_function_leads_the_streams_it_names() {
    for test in TestAllocator::both("") {
        let [stream, other] = test.streams();
        let pool = test.allocator.create_pool();
        let named = Arc::new(Mutex::new(stream.handle()));
        let asked = Arc::clone(&named);
        let filter = Filter::function(move |stream| *asked.lock().expect("sound") == stream);
        assert_eq!(format!("{filter:?}"), "Function(..)");
        test.allocator.begin_allocate_to_pool(pool.id(), filter).expect("it begins");
        assert!(serves(&pool, &test, &stream));
        assert!(!serves(&pool, &test, &other));
        // It is asked at every request, as a capture may begin later than its route.
        *named.lock().expect("sound") = other.handle();
        assert!(!serves(&pool, &test, &stream));
        assert!(serves(&pool, &test, &other));
        test.allocator.end_allocate_to_pool(pool.id()).expect("it was begun");
        assert_eq!(Arc::strong_count(&named), 1, "the function is dropped with it");
        assert!(!serves(&pool, &test, &other));
        test.assert_sound();
    }
}

#[test]
#[expect(clippy::mem_forget, reason = "a forgotten guard is the case")]
fn p6_a_forgotten_guard_leads_into_no_later_pool() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let first = test.allocator.create_pool();
    // The guard is never dropped, so the thread stays inside of the first pool.
    std::mem::forget(first.enter(&stream).unwrap());
    drop(test.allocate(512, &stream));
    drop(first);
    let second = test.allocator.create_pool();
    let own = second.allocate(512, &stream).unwrap();
    let stray = test.allocate(512, &stream);
    assert_eq!(second.stats().allocations, 1);
    drop((own, stray));
}

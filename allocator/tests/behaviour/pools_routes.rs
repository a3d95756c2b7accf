//! Which requests a pool serves: by guards of threads, by stream, by a function, or all.

use std::sync::{Arc, Mutex};
use std::thread;

use cachette::hal::CaptureMode;
use cachette::pool::{Filter, PoolProblem};
use cachette::{Error, Pool};

use crate::bed::{Bed, Lane, MIB, Memory, Room};

/// Where requests go, by what they change.
fn served_by(pool: &Room, request: impl FnOnce() -> Memory) -> bool {
    let before = pool.stats().allocations;
    let memory = request();
    let served = pool.stats().allocations == before + 1;
    drop(memory);
    served
}

/// Whether a request of this thread for `stream` is served by `pool`.
fn serves(pool: &Room, bed: &Bed, stream: &Lane) -> bool {
    served_by(pool, || bed.allocate(MIB, stream))
}

fn why<T>(result: Result<T, Error>) -> Option<PoolProblem> {
    match result.err() {
        Some(Error::Pool { why, .. }) => Some(why),
        _ => None,
    }
}

#[test]
fn p4_a_guard_leads_its_stream_and_no_other() {
    for bed in Bed::both("") {
        let (stream, other) = (bed.stream(), bed.stream());
        let pool = bed.allocator.create_pool();
        let inside = pool.enter(&stream).expect("it is there");
        assert!(serves(&pool, &bed, &stream));
        assert!(!serves(&pool, &bed, &other));
        drop(inside);
        assert!(!serves(&pool, &bed, &stream));
        bed.assert_sound();
    }
}

#[test]
fn p4_a_guard_for_every_stream_leads_them_all_the_default_one_too() {
    let bed = Bed::new();
    let streams = [bed.stream(), bed.stream(), bed.allocator.default_stream().expect("there is one")];
    let pool = bed.allocator.create_pool();
    let inside = pool.enter_all();
    assert!(streams.iter().all(|stream| serves(&pool, &bed, stream)));
    let late = bed.stream();
    assert!(serves(&pool, &bed, &late), "a stream made later too");
    drop(inside);
    assert!(!serves(&pool, &bed, &late));
}

#[test]
fn p4_other_threads_keep_the_default_pool() {
    let bed = Bed::new();
    let stream = bed.stream();
    let pool = bed.allocator.create_pool();
    let _inside = pool.enter_all();
    thread::scope(|scope| {
        let elsewhere = scope.spawn(|| serves(&pool, &bed, &stream));
        assert!(!elsewhere.join().expect("no thread panics"));
    });
    assert!(serves(&pool, &bed, &stream));
}

#[test]
fn p4_every_thread_has_the_pool_it_entered() {
    let bed = Bed::new();
    let pools: Vec<Room> = (0..4).map(|_| bed.allocator.create_pool()).collect();
    thread::scope(|scope| {
        for pool in &pools {
            let bed = &bed;
            scope.spawn(move || {
                let stream = bed.stream();
                let _inside = pool.enter(&stream).expect("it is there");
                for _ in 0..100 {
                    let held = [bed.allocate(MIB, &stream), bed.allocate(3 * MIB, &stream)];
                    assert_eq!(pool.stats().allocations, 2);
                    drop(held);
                }
            });
        }
    });
    bed.assert_sound();
    assert!(pools.iter().all(|pool| pool.stats().segments == 2));
}

#[test]
fn p7_guards_nest_and_the_innermost_serves() {
    let bed = Bed::new();
    let stream = bed.stream();
    let [outer, inner] = [bed.allocator.create_pool(), bed.allocator.create_pool()];
    let outer_guard = outer.enter(&stream).expect("it is there");
    {
        let _inside = inner.enter(&stream).expect("it is there");
        assert!(serves(&inner, &bed, &stream));
        {
            let _again = outer.enter(&stream).expect("it is there");
            assert!(serves(&outer, &bed, &stream));
        }
        assert!(serves(&inner, &bed, &stream));
    }
    assert!(serves(&outer, &bed, &stream));
    drop(outer_guard);
    assert!(!serves(&outer, &bed, &stream) && !serves(&inner, &bed, &stream));
}

#[test]
fn p7_an_inner_guard_of_another_stream_hides_nothing() {
    let bed = Bed::new();
    let (stream, other) = (bed.stream(), bed.stream());
    let [outer, inner] = [bed.allocator.create_pool(), bed.allocator.create_pool()];
    let _outer = outer.enter_all();
    let _inner = inner.enter(&other).expect("it is there");
    assert!(serves(&outer, &bed, &stream));
    assert!(serves(&inner, &bed, &other));
}

#[test]
fn p7_guards_may_go_in_any_order() {
    let bed = Bed::new();
    let stream = bed.stream();
    let [first, second, third] = [(); 3].map(|()| bed.allocator.create_pool());
    let one = first.enter(&stream).expect("it is the bed's");
    let two = second.enter(&stream).expect("it is the bed's");
    let three = third.enter(&stream).expect("it is the bed's");
    drop(two);
    assert!(serves(&third, &bed, &stream));
    drop(three);
    assert!(serves(&first, &bed, &stream));
    drop(one);
    assert!(!serves(&first, &bed, &stream));
    assert_eq!([&first, &second, &third].map(Pool::use_count), [1; 3]);
}

#[test]
fn p7_guards_of_two_allocators_do_not_mix() {
    let (one, other) = (Bed::new(), Bed::new());
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
fn p4_a_stream_of_another_allocator_is_refused() {
    let (bed, elsewhere) = (Bed::new(), Bed::new());
    let foreign = elsewhere.stream();
    let pool = bed.allocator.create_pool();
    assert!(matches!(pool.enter(&foreign), Err(Error::ForeignStream)));
    let allocated = pool.allocate(MIB, &foreign);
    assert!(matches!(allocated, Err(Error::ForeignStream)));
    assert_eq!(pool.use_count(), 1);
}

#[test]
fn p7_raw_memory_is_led_as_well() {
    let bed = Bed::new();
    let stream = bed.stream();
    let pool = bed.allocator.create_pool();
    let led = {
        let _inside = pool.enter(&stream).expect("it is there");
        bed.allocate_raw(MIB, &stream)
    };
    let outside = bed.allocate_raw(MIB, &stream);
    assert!(pool.check_live_allocations(&[led]));
    bed.allocator.begin_allocate_to_pool(pool.id(), Filter::All).expect("it begins");
    let routed = bed.allocate_raw(MIB, &stream);
    assert!(pool.check_live_allocations(&[led, routed]));
    bed.allocator.end_allocate_to_pool(pool.id()).expect("it was begun");
    for address in [led, outside, routed] {
        bed.allocator.free_raw(address).expect("it is allocated");
    }
    assert!(pool.check_live_allocations(&[]));
    bed.assert_sound();
}

#[test]
fn p3_a_route_leads_every_thread_until_it_is_ended() {
    for bed in Bed::both("") {
        let (stream, other) = (bed.stream(), bed.stream());
        let pool = bed.allocator.create_pool();
        let warm = bed.allocate(MIB, &stream);
        drop(warm);
        bed.allocator.begin_allocate_to_pool(pool.id(), Filter::All).expect("it begins");
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| serves(&pool, &bed, &stream));
            assert!(elsewhere.join().expect("no thread panics"));
        });
        let late = bed.stream();
        assert!([&stream, &other, &late].iter().all(|stream| serves(&pool, &bed, stream)));
        bed.allocator.end_allocate_to_pool(pool.id()).expect("it was begun");
        assert!(![&stream, &other, &late].iter().any(|stream| serves(&pool, &bed, stream)));
        bed.assert_sound();
    }
}

#[test]
fn p4_a_route_by_stream_leads_that_stream_alone() {
    let bed = Bed::new();
    let (stream, other) = (bed.stream(), bed.stream());
    let [by_stream, by_all] = [bed.allocator.create_pool(), bed.allocator.create_pool()];
    let begin = |pool: &Room, filter| bed.allocator.begin_allocate_to_pool(pool.id(), filter);
    begin(&by_all, Filter::All).expect("it begins");
    begin(&by_stream, Filter::Stream(stream.handle())).expect("it begins");
    assert!(serves(&by_stream, &bed, &stream), "the route begun last");
    assert!(serves(&by_all, &bed, &other));
    bed.allocator.end_allocate_to_pool(by_stream.id()).expect("it was begun");
    assert!(serves(&by_all, &bed, &stream));
    bed.allocator.end_allocate_to_pool(by_all.id()).expect("it was begun");
}

#[test]
fn p4_a_guard_comes_before_a_route() {
    let bed = Bed::new();
    let stream = bed.stream();
    let [routed, entered] = [bed.allocator.create_pool(), bed.allocator.create_pool()];
    let inside = entered.enter(&stream).expect("it is there");
    bed.allocator.begin_allocate_to_pool(routed.id(), Filter::All).expect("it begins");
    assert!(serves(&entered, &bed, &stream));
    drop(inside);
    assert!(serves(&routed, &bed, &stream));
}

#[test]
fn p3_p5_a_route_is_begun_once_and_ended_once() {
    let bed = Bed::new();
    let stream = bed.stream();
    let pool = bed.allocator.create_pool();
    let id = pool.id();
    let ended = bed.allocator.end_allocate_to_pool(id);
    assert_eq!(why(ended), Some(PoolProblem::NotBegun));
    bed.allocator.begin_allocate_to_pool(id, Filter::All).expect("it begins");
    let again = bed.allocator.begin_allocate_to_pool(id, Filter::Stream(stream.handle()));
    assert_eq!(why(again), Some(PoolProblem::Begun));
    assert!(serves(&pool, &bed, &stream));
    bed.allocator.end_allocate_to_pool(id).expect("it was begun");
    assert_eq!(why(bed.allocator.end_allocate_to_pool(id)), Some(PoolProblem::NotBegun));
    let unknown = cachette::PoolId::new();
    let begun = bed.allocator.begin_allocate_to_pool(unknown, Filter::All);
    assert_eq!(why(begun), Some(PoolProblem::Unknown));
    assert!(!serves(&pool, &bed, &stream));
}

#[test]
fn p3_a_route_is_a_user_of_its_pool() {
    let bed = Bed::new();
    let stream = bed.stream();
    let pool = bed.allocator.create_pool();
    let id = pool.id();
    bed.allocator.begin_allocate_to_pool(id, Filter::All).expect("it begins");
    assert_eq!(pool.use_count(), 2);
    drop(pool);
    let led = bed.allocate(MIB, &stream);
    let opened = bed.allocator.open_pool(id).expect("the route uses it");
    let other = bed.allocator.create_pool();
    assert!(opened.check_live_allocations(&[led.address()]));
    let apart = other.allocate(MIB, &stream).expect("there is room");
    assert!(other.check_live_allocations(&[apart.address()]));
    drop(opened);
    bed.allocator.end_allocate_to_pool(id).expect("it was begun");
    drop((led, apart, other));
    bed.allocator.empty_cache().expect("nothing fails");
    assert_eq!(bed.device.physical_bytes(), 0);
    assert!(bed.allocator.open_pool(id).is_err());
}

#[test]
fn p4_a_route_by_a_function_leads_the_streams_it_names() {
    for bed in Bed::both("") {
        let (stream, other) = (bed.stream(), bed.stream());
        let pool = bed.allocator.create_pool();
        let named = Arc::new(Mutex::new(stream.handle()));
        let asked = Arc::clone(&named);
        let filter = Filter::function(move |stream| *asked.lock().expect("sound") == stream);
        assert_eq!(format!("{filter:?}"), "Function(..)");
        bed.allocator.begin_allocate_to_pool(pool.id(), filter).expect("it begins");
        assert!(serves(&pool, &bed, &stream));
        assert!(!serves(&pool, &bed, &other));
        // It is asked at every request, as a capture may begin later than its route.
        *named.lock().expect("sound") = other.handle();
        assert!(!serves(&pool, &bed, &stream));
        assert!(serves(&pool, &bed, &other));
        bed.allocator.end_allocate_to_pool(pool.id()).expect("it was begun");
        assert_eq!(Arc::strong_count(&named), 1, "the function is dropped with it");
        assert!(!serves(&pool, &bed, &other));
        bed.assert_sound();
    }
}

#[test]
#[expect(clippy::mem_forget, reason = "a forgotten guard is the case")]
fn p6_a_forgotten_guard_leads_into_no_later_pool() {
    let bed = Bed::new();
    let stream = bed.stream();
    let first = bed.allocator.create_pool();
    // The guard is never dropped, so the thread stays inside of the first pool.
    std::mem::forget(first.enter(&stream).unwrap());
    drop(bed.allocate(512, &stream));
    drop(first);
    let second = bed.allocator.create_pool();
    let own = second.allocate(512, &stream).unwrap();
    let stray = bed.allocate(512, &stream);
    assert_eq!(second.stats().allocations, 1);
    drop((own, stray));
}

#[test]
fn p8_a_stream_of_another_allocator_is_not_captured() {
    let (bed, foreign) = (Bed::new(), Bed::new());
    let (own, side) = (bed.stream(), foreign.stream());
    let pool = bed.allocator.create_capture_pool();
    let begun = pool.begin_capture(&side, CaptureMode::Global);
    assert!(matches!(begun, Err(Error::ForeignStream)));
    own.synchronize().unwrap();
    assert!(!bed.is_captured(&own) && !foreign.is_captured(&side));
}

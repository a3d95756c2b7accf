//! The order in which allocators, streams, allocations and threads may end.

use std::sync::{Barrier, Mutex, mpsc};
use std::thread;

use cachette::hal::Device;
use cachette::{Allocator, TraceAction};
use cachette_hal_host::Live;

use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{Allocation, KIB, MIB, Stream, TestAllocator};

#[test]
fn allocations_outlive_the_allocator() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let live: Vec<_> = [KIB, 3 * MIB, 12 * MIB].map(|bytes| test.allocate(bytes, &stream)).into();
    for memory in &live {
        test.fill(memory, 3, &stream);
    }
    let keeper = test.device.clone();
    let held = test.beside("");
    drop(test);
    for memory in &live {
        assert_eq!(held.content(memory, &stream), Some(3));
    }
    drop((held, stream));
    // 12 MiB fit into what the 3 MiB left of their segment.
    assert_eq!(keeper.live().allocations, 2);
    drop(live);
    assert_eq!(keeper.live(), Live::default());
}

#[test]
fn e2_a_use_by_another_stream_outlasts_the_allocator() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(12 * MIB, &stream);
    let (device, hold) = (test.device.clone(), test.hold(&side));
    memory.record_stream(&side);
    drop((stream, side, test));
    let dropped = start(move || drop(memory));
    assert!(is_waiting(&dropped));
    hold.release();
    dropped.recv().unwrap();
    assert_eq!(device.live(), Live::default());
}

#[test]
fn a_stream_outlives_the_allocator() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    drop(test.allocate(KIB, &stream));
    let device = test.device.clone();
    drop(test);
    stream.synchronize().unwrap();
    assert_eq!(device.live().streams, 1);
    drop(stream);
    assert_eq!(device.live(), Live::default());
}

#[test]
fn clones_name_the_same_allocator_and_the_same_stream() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (allocator, same) = (test.allocator.clone(), stream.clone());
    let address = test.allocate(MIB, &stream).address();
    assert_eq!(allocator.allocate(MIB, &same).unwrap().address(), address);
    assert_eq!(allocator.stats(), test.stats());
    let default = test.allocator.default_stream().unwrap();
    let again = allocator.default_stream().unwrap();
    let address = test.allocate(MIB, &default).address();
    assert_eq!(test.allocate(MIB, &again).address(), address);
}

#[test]
fn an_adopted_stream_is_not_destroyed() {
    let test = TestAllocator::new();
    let owned = cachette::hal::owned::OwnedStream::create(test.device.clone()).unwrap();
    // SAFETY: 1. the stream was made just now. 2. its owner outlives the allocator.
    let stream = unsafe { test.allocator.adopt_stream(owned.get()) }.unwrap();
    drop(test.allocate(MIB, &stream));
    let device = test.device.clone();
    drop((stream, test));
    assert_eq!(device.live().streams, 1);
    owned.close().unwrap();
    assert_eq!(device.live(), Live::default());
}

#[test]
fn handles_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Allocator>();
    crosses::<Allocation>();
    crosses::<Stream>();
    crosses::<cachette::Error>();
}

#[test]
fn a_heap_outlives_a_free_that_is_under_way() {
    let test = TestAllocator::new();
    let device = test.device.clone();
    let [stream, side] = test.streams();
    let [first, second] = [(); 2].map(|()| test.allocate(12 * MIB, &stream));
    first.record_stream(&side);
    // The tracker stops the first free after its block has ceased to count as allocated.
    let (reached, is_reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let ends = Mutex::new((reached, may_go_on));
    let address = first.address();
    test.allocator.track(move |event| {
        if event.action == TraceAction::FreeRequested && event.address == address {
            let ends = ends.lock().unwrap();
            ends.0.send(()).unwrap();
            ends.1.recv().unwrap();
        }
    });
    drop((stream, side, test));
    let freeing = thread::spawn(move || drop(first));
    is_reached.recv().unwrap();
    drop(second);
    go_on.send(()).unwrap();
    freeing.join().unwrap();
    assert_eq!(device.live(), Live::default());
}

#[test]
fn two_threads_may_free_the_last_two_at_once() {
    for round in 0..400 {
        let test = TestAllocator::new();
        let device = test.device.clone();
        let [stream, side] = test.streams();
        let [first, second] = [(); 2].map(|()| test.allocate(12 * MIB, &stream));
        first.record_stream(&side);
        drop((stream, side, test));
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                drop(first);
            });
            start.wait();
            for _ in 0..(round % 64) * 8 {
                std::hint::spin_loop();
            }
            drop(second);
        });
        assert_eq!(device.live(), Live::default(), "round {round}");
    }
}

#[test]
fn a_stream_of_the_program_is_not_given_to_others() {
    let test = TestAllocator::new();
    let raw = test.device.create_stream().unwrap();
    // SAFETY: 1. the stream was created above. 2. It is destroyed last.
    let adopted = unsafe { test.allocator.adopt_stream(raw.borrow()) }.unwrap();
    drop(test.allocate(MIB, &adopted));
    drop(adopted);
    test.allocator.empty_cache().unwrap();
    let created = test.stream();
    assert_ne!(created.handle(), raw.borrow());
    drop((created, test.allocator));
    // SAFETY: 1. no allocator uses it any more.
    unsafe { test.device.destroy_stream(raw) }.unwrap();
}

#[test]
fn what_a_program_holds_is_shown_in_one_short_line() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(3 * MIB, &stream);
    let pool = test.allocator.create_pool();
    let event = stream.record_event().unwrap();
    let shown = format!("{:?}", test.allocator);
    let expected = "Allocator { device: host 0, Cachette host device 0, allocated: 3.00 MiB, reserved: 20.00 MiB, .. }";
    assert_eq!(shown, expected);
    for shown in [format!("{stream:?}"), format!("{pool:?}"), format!("{event:?}"), format!("{memory:?}")] {
        assert!(shown.len() < 200 && !shown.contains('\n'), "{shown}");
    }
}

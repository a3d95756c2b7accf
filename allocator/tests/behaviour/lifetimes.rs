//! The order in which allocators, streams, allocations and threads may end.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use cachette::hal::Device;
use cachette::{Allocator, LeakedAllocation, TraceAction};
use cachette_hal_host::Live;

use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{Allocation, KIB, MIB, Stream, TestAllocator};

#[test]
fn everything_goes_back_with_the_allocator() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    for bytes in [512, MIB, 3 * MIB, 12 * MIB] {
        let memory = test.allocate(bytes, &stream);
        memory.record_stream(&side);
        drop(memory);
        test.allocate(bytes, &side).release_after(&[&stream]).unwrap();
    }
    drop((stream, side));
    test.assert_returns_everything();
}

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
fn the_last_of_several_allocations_ends_the_heap() {
    let test = TestAllocator::new();
    let device = test.device.clone();
    let mut live: Vec<_> = {
        let stream = test.stream();
        (0..10).map(|_| test.allocate(KIB, &stream)).collect()
    };
    drop(test);
    while live.len() > 1 {
        live.pop();
        assert_eq!(device.live().allocations, 1);
        assert_eq!(device.live().streams, 1);
    }
    drop(live);
    assert_eq!(device.live(), Live::default());
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
fn allocations_are_dropped_on_any_thread() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (send, receive) = mpsc::sync_channel::<Allocation>(64);
    let dropper = thread::spawn(move || receive.into_iter().map(drop).count());
    for step in 0..2000_u64 {
        let bytes = 1 + step * 7919 % (4 * MIB);
        send.send(test.allocate(bytes, &stream)).unwrap();
    }
    drop(send);
    assert_eq!(dropper.join().unwrap(), 2000);
    assert_eq!(test.stats().allocation.all.current, 0);
    assert_eq!(test.stats().allocation.all.freed, 2000);
    test.assert_sound();
    drop(stream);
    test.assert_returns_everything();
}

#[test]
fn threads_on_one_stream_never_get_the_same_memory() {
    let (test, [stream]) = TestAllocator::phantom(1 << 33, "").with_streams();
    let live = Mutex::new(std::collections::BTreeMap::<u64, u64>::new());
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (test, stream, live) = (&test, &stream, &live);
            scope.spawn(move || {
                for step in 0..500_u64 {
                    let memory = test.allocate(1 + (step * 31 + thread) * 509 % (2 * MIB), stream);
                    claim(live, &memory);
                    live.lock().unwrap().remove(&memory.address());
                }
            });
        }
    });
    test.assert_sound();
}

/// Notes a live range; it must overlap none.
fn claim(live: &Mutex<std::collections::BTreeMap<u64, u64>>, memory: &Allocation) {
    let (start, end) = (memory.address(), memory.address() + memory.bytes());
    let mut live = live.lock().expect("no claim failed before");
    let before = live.range(..end).next_back().map(|(_, end)| *end);
    assert!(before.is_none_or(|before| before <= start), "memory overlaps");
    live.insert(start, end);
}

#[test]
fn raw_memory_is_reported_as_leaked_with_the_allocators_drop() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let reported: Arc<Mutex<Vec<LeakedAllocation>>> = Arc::default();
    let log = Arc::clone(&reported);
    test.allocator.on_leak(move |leaks| log.lock().unwrap().extend_from_slice(leaks));
    let first = test.allocate_raw(1000, &stream);
    let second = test.allocate(12 * MIB, &stream).into_raw();
    let freed = test.allocate_raw(KIB, &stream);
    let owned = test.allocate(KIB, &stream);
    test.allocator.free_raw(freed).unwrap();
    assert_eq!(test.allocator.raw_allocations().len(), 2);
    assert!(reported.lock().unwrap().is_empty());
    let clone = test.allocator.clone();
    let on = stream.handle();
    drop((test, stream));
    assert!(reported.lock().unwrap().is_empty());
    drop(clone);
    let leaks: Vec<_> =
        reported.lock().unwrap().iter().map(|leak| (leak.address, leak.requested, leak.stream)).collect();
    assert_eq!(leaks, [(first, 1000, on), (second, 12 * MIB, on)]);
    drop(owned);
}

#[test]
fn an_allocator_without_leaks_reports_none() {
    let test = TestAllocator::new();
    test.allocator.on_leak(|leaks| panic!("{leaks:?}"));
    let stream = test.stream();
    let owned = test.allocate(KIB, &stream);
    let raw = test.allocate_raw(KIB, &stream);
    test.allocator.free_raw(raw).unwrap();
    drop((test, stream));
    drop(owned);
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

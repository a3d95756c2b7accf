//! Callbacks: trackers of every event, and observers of out-of-memory.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cachette::hal::{Call, CaptureMode, Device, ErrorKind};
use cachette::{Notice, OutOfMemory, TraceAction, TraceEvent};
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, MIB, TestAllocator, let_pass};

type Seen<T> = Arc<Mutex<Vec<T>>>;

/// All events of the allocator from now on.
fn track(test: &TestAllocator) -> Seen<TraceEvent> {
    let seen: Seen<TraceEvent> = Arc::default();
    let log = Arc::clone(&seen);
    test.allocator.track(move |event| log.lock().expect("no test failed in it").push(*event));
    seen
}

/// Events since the last call, as (action, address, bytes).
fn told(seen: &Seen<TraceEvent>) -> Vec<(TraceAction, u64, u64)> {
    let events = std::mem::take(&mut *seen.lock().expect("no tracker failed in it"));
    let facts = |event: TraceEvent| (event.action, event.address, event.bytes);
    events.into_iter().map(facts).collect()
}

#[test]
fn h14_trackers_hear_of_everything_in_order() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let seen = track(&test);
    let memory = test.allocate(1000, &stream);
    let at = memory.address();
    assert_eq!(told(&seen), [(TraceAction::SegmentAlloc, at, 2 * MIB), (TraceAction::Alloc, at, 1000)]);
    drop(memory);
    assert_eq!(told(&seen), [(TraceAction::FreeRequested, at, 1000), (TraceAction::FreeCompleted, at, 1000)]);
    test.allocator.empty_cache().unwrap();
    assert_eq!(told(&seen), [(TraceAction::SegmentFree, at, 2 * MIB)]);
}

#[test]
fn a_tracker_of_rare_actions_hears_of_no_block() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let seen: Seen<TraceEvent> = Arc::default();
    let log = Arc::clone(&seen);
    let rare = [TraceAction::SegmentAlloc, TraceAction::SegmentFree];
    test.allocator.track_actions(&rare, move |event| log.lock().expect("no test failed in it").push(*event));
    let at = test.allocate(1000, &stream).address();
    test.allocator.empty_cache().unwrap();
    assert_eq!(told(&seen), [(TraceAction::SegmentAlloc, at, 2 * MIB), (TraceAction::SegmentFree, at, 2 * MIB)]);
}

#[test]
fn observers_learn_how_long_a_request_waited() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let longest: Arc<Mutex<Duration>> = Arc::default();
    let log = Arc::clone(&longest);
    test.allocator.on_notice(move |notice| {
        if let Notice::Waited { time } = notice {
            let mut longest = log.lock().expect("no test failed in it");
            *longest = (*longest).max(*time);
        }
    });
    let hold = test.free_in_use(test.allocate(MIB, &stream), &side);
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(hold);
    });
    test.allocator.empty_cache().unwrap();
    ending.join().unwrap();
    assert!(*longest.lock().unwrap() >= Duration::from_millis(10), "{longest:?}");
}

#[test]
fn e2_the_end_of_a_free_is_told_when_other_streams_are_done() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(MIB, &stream);
    let (at, seen) = (memory.address(), track(&test));
    let hold = test.free_in_use(memory, &side);
    assert_eq!(told(&seen), [(TraceAction::FreeRequested, at, MIB)]);
    let_pass(hold, &side);
    let again = test.allocate(MIB, &stream);
    assert_eq!(told(&seen), [(TraceAction::FreeCompleted, at, MIB), (TraceAction::Alloc, at, MIB)]);
    drop(again);
}

#[test]
fn e2_the_end_of_a_free_is_told_before_the_block_is_allocated_again() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), ELASTIC);
    let [owner, side, late] = test.streams();
    let _neighbour = test.allocate(MIB, &owner);
    let memory = test.allocate(MIB, &owner);
    let (at, seen) = (memory.address(), track(&test));
    memory.record_stream(&side);
    drop(memory);
    side.synchronize().unwrap();
    // The late stream looks for idle memory of the owner first, then it maps some.
    let (also, own) = (test.allocator.clone(), owner.clone());
    let again = hook.start(Call::CreateBacking, None, move || also.allocate(MIB, &own));
    let _late = test.allocate(8 * MIB, &late);
    let again = again.result().unwrap();
    // The block may have been pending until the end of the late request.
    let _next = (again.address() != at).then(|| test.allocate(MIB, &owner));
    let actions: Vec<_> = told(&seen).into_iter().filter(|told| told.1 == at).map(|told| told.0).collect();
    assert_eq!(actions, [TraceAction::FreeRequested, TraceAction::FreeCompleted, TraceAction::Alloc]);
}

#[test]
fn h17_trackers_hear_of_raw_memory_and_of_its_stream() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let seen = track(&test);
    let address = test.allocate_raw(700, &stream);
    test.allocator.free_raw(address).unwrap();
    let events = seen.lock().unwrap();
    assert!(events.iter().all(|event| event.stream == stream.handle()));
    let actions: Vec<_> = events.iter().map(|event| event.action).collect();
    assert_eq!(
        actions,
        [TraceAction::SegmentAlloc, TraceAction::Alloc, TraceAction::FreeRequested, TraceAction::FreeCompleted]
    );
}

#[test]
fn m14_a_segment_is_told_to_go_before_it_goes() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    drop(test.allocate(12 * MIB, &stream));
    let (device, order) = (test.device.clone(), Arc::new(Mutex::new(None)));
    let frees = Arc::clone(&order);
    test.allocator.track(move |event| {
        if event.action == TraceAction::SegmentFree {
            *frees.lock().unwrap() = Some(device.calls(Call::Free));
        }
    });
    test.allocator.empty_cache().unwrap();
    assert_eq!(*order.lock().unwrap(), Some(0));
    assert_eq!(test.device.calls(Call::Free), 1);
}

#[test]
fn m14_a_segment_whose_free_failed_is_not_left_told_as_gone() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let seen = track(&test);
    drop(test.allocate(12 * MIB, &stream));
    for call in [Call::Record, Call::Wait, Call::Free] {
        test.device.fail_next(call, 1, ErrorKind::Other);
        assert!(test.allocator.empty_cache().is_err());
        let mut held = BTreeMap::new();
        for event in seen.lock().unwrap().iter() {
            let known = held.entry(event.address).or_insert(0_i32);
            match event.action {
                TraceAction::SegmentAlloc => *known += 1,
                TraceAction::SegmentFree => *known -= 1,
                _ => {}
            }
        }
        assert_eq!(held.into_values().collect::<Vec<_>>(), [1], "{call} failed, and the segment is still held");
    }
}

#[test]
fn m18_observers_hear_of_exhaustion_before_the_request_returns() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    let reports: Seen<OutOfMemory> = Arc::default();
    for _ in 0..2 {
        let log = Arc::clone(&reports);
        test.allocator.on_out_of_memory(move |report| log.lock().unwrap().push(report.clone()));
    }
    let seen = track(&test);
    let error = test.allocator.allocate(99 * MIB, &stream).unwrap_err();
    let reports = reports.lock().unwrap();
    assert_eq!(reports.len(), 2);
    assert_eq!(cachette::Error::from(reports[0].clone()), error);
    assert_eq!((reports[0].requested, reports[0].segment), (99 * MIB, 100 * MIB));
    // The tracker hears the device's free bytes and the rounded size.
    assert_eq!(told(&seen), [(TraceAction::OutOfMemory, 64 * MIB, 99 * MIB)]);
    assert_eq!(test.stats().num_ooms, 1);
}

#[test]
fn m18_an_observer_may_use_the_allocator() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    let kept = Arc::new(Mutex::new(vec![test.allocate(40 * MIB, &stream)]));
    let (allocator, on, drops) = (test.allocator.clone(), stream.clone(), Arc::clone(&kept));
    test.allocator.on_out_of_memory(move |_| {
        drops.lock().unwrap().clear();
        let small = allocator.allocate(512, &on).expect("there is room by now");
        assert!(allocator.check().is_ok());
        assert_eq!(small.bytes(), 512);
        assert!(allocator.stats().num_ooms >= 1);
    });
    assert!(test.allocator.allocate(50 * MIB, &stream).is_err());
    assert!(test.allocator.allocate(50 * MIB, &stream).is_ok());
}

/// A tracker that panics at every `action`, until the switch is off.
fn panic_at(test: &TestAllocator, action: TraceAction) -> Arc<AtomicBool> {
    let armed = Arc::new(AtomicBool::new(true));
    let also = Arc::clone(&armed);
    test.allocator.track(move |event| {
        assert!(!(also.load(SeqCst) && event.action == action), "the tracker panics");
    });
    armed
}

/// Whether `act` panics.
fn panics(act: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

#[test]
fn h14_a_tracker_that_panics_at_an_allocation_loses_no_block() {
    for text in ["", "expandable_segments:True"] {
        for action in [TraceAction::Alloc, TraceAction::SegmentAlloc, TraceAction::SegmentMap] {
            let (test, [stream]) = TestAllocator::with(text).with_streams();
            let armed = panic_at(&test, action);
            let asked = panics(|| drop(test.allocate(12 * MIB, &stream)));
            let is_told = match action {
                TraceAction::SegmentAlloc => text.is_empty(),
                TraceAction::SegmentMap => !text.is_empty(),
                _ => true,
            };
            assert_eq!(asked, is_told, "{text} {action:?}");
            armed.store(false, SeqCst);
            assert_eq!(test.stats().allocation.all.current, 0, "{text} {action:?}");
            drop(test.allocate(12 * MIB, &stream));
            assert_eq!(test.stats().reserved_bytes.all.current, 12 * MIB);
            test.allocator.check().unwrap();
            test.assert_returns_everything_after(stream);
        }
    }
}

#[test]
fn h14_a_tracker_that_panics_at_a_free_loses_no_use() {
    for action in [TraceAction::FreeRequested, TraceAction::FreeCompleted] {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        let memory = test.allocate(12 * MIB, &stream);
        let (address, hold) = (memory.address(), test.hold(&side));
        memory.record_stream(&side);
        let armed = panic_at(&test, action);
        assert_eq!(panics(|| drop(memory)), action == TraceAction::FreeRequested);
        assert_ne!(test.allocate(12 * MIB, &stream).into_raw(), address);
        let_pass(hold, &side);
        let mut next = None;
        let told = panics(|| next = Some(test.allocate(12 * MIB, &stream)));
        assert_eq!(told, action == TraceAction::FreeCompleted);
        armed.store(false, SeqCst);
        let next = next.unwrap_or_else(|| test.allocate(12 * MIB, &stream));
        assert_eq!(next.address(), address);
        test.allocator.check().unwrap();
    }
}

#[test]
fn h14_a_tracker_that_panics_as_memory_goes_loses_none() {
    for (text, action) in [("", TraceAction::SegmentFree), ("expandable_segments:True", TraceAction::SegmentUnmap)] {
        let (test, [stream]) = TestAllocator::with(text).with_streams();
        drop(test.allocate(12 * MIB, &stream));
        let armed = panic_at(&test, action);
        assert!(panics(|| drop(test.allocator.empty_cache())));
        armed.store(false, SeqCst);
        test.allocator.empty_cache().unwrap();
        assert_eq!(test.stats().reserved_bytes.all.current, 0, "{text}");
        test.allocator.check().unwrap();
        test.assert_returns_everything_after(stream);
    }
}

#[test]
fn h14_a_tracker_that_panics_at_the_end_keeps_no_memory() {
    for (text, action) in [("", TraceAction::SegmentFree), ("expandable_segments:True", TraceAction::SegmentUnmap)] {
        let (test, [stream, side]) = TestAllocator::with(text).with_streams();
        for stream in [&stream, &side] {
            drop([12, 14].map(|mib| test.allocate(mib * MIB, stream)));
        }
        panic_at(&test, action);
        let device = test.device.clone();
        assert!(panics(|| drop((stream, side, test))));
        assert_eq!(device.physical_bytes(), 0, "{text}");
    }
}

/// Checks that no block is lost: everything is free and returned to the device.
fn assert_nothing_lost(test: &TestAllocator, armed: &AtomicBool, case: &str) {
    armed.store(false, SeqCst);
    test.device.synchronize_device().expect("the device is idle in the end");
    for _ in 0..2 {
        test.allocator.empty_cache().expect("the device frees memory");
    }
    assert_eq!((test.stats().active.all.current, test.allocator.reserved_bytes()), (0, 0), "{case}");
}

#[test]
fn h14_a_tracker_that_panics_loses_no_block_whose_fences_failed() {
    for text in ["", ELASTIC] {
        let (test, [stream, side]) = TestAllocator::with(text).with_streams();
        let blocks = [(); 3].map(|()| test.allocate(10_000, &stream));
        for block in blocks {
            test.device.fail_next(Call::Record, 1, ErrorKind::Other);
            assert!(block.release_after(&[&side]).is_err());
        }
        test.device.clear_failures();
        let armed = panic_at(&test, TraceAction::FreeCompleted);
        assert!(panics(|| drop(test.allocator.empty_cache())));
        assert_nothing_lost(&test, &armed, text);
    }
}

#[test]
fn h14_a_tracker_that_panics_loses_no_block_of_a_capture() {
    for text in ["", ELASTIC] {
        let (test, [stream, side]) = TestAllocator::with(text).with_streams();
        let (pool, capture) = test.capture(&stream);
        let blocks = [(); 3].map(|()| test.allocate(10_000, &stream));
        test.follow(&side, &stream);
        for block in &blocks {
            block.record_stream(&side);
        }
        test.follow(&stream, &side);
        drop(blocks);
        drop(capture.end().unwrap());
        let armed = panic_at(&test, TraceAction::FreeCompleted);
        assert!(panics(|| drop(pool)));
        assert_nothing_lost(&test, &armed, text);
    }
}

#[test]
fn h14_every_free_of_a_batch_is_told_although_a_tracker_panics() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let blocks = [(); 3].map(|()| test.allocate(10_000, &stream));
    let hold = test.hold(&side);
    for block in blocks {
        block.record_stream(&side);
    }
    let_pass(hold, &side);
    let (_armed, seen) = (panic_at(&test, TraceAction::FreeCompleted), track(&test));
    assert!(panics(|| drop(test.allocator.empty_cache())));
    let completed = told(&seen).into_iter().filter(|(action, ..)| *action == TraceAction::FreeCompleted);
    assert_eq!(completed.count(), 3);
}

#[test]
fn h14_a_tracker_that_panics_in_a_restore_loses_no_block() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    drop([(); 3].map(|()| pool.allocate(10_000, &stream).unwrap()));
    let saved = pool.checkpoint().unwrap();
    {
        let _inside = pool.enter(&side).unwrap();
        let _ = [(); 3].map(|()| test.allocate_raw(10_000, &side));
    }
    let armed = panic_at(&test, TraceAction::FreeCompleted);
    assert!(panics(|| drop(pool.restore(&saved))));
    armed.store(false, SeqCst);
    drop(pool);
    assert_nothing_lost(&test, &armed, "a restore");
}

/// A tracker hears of a pending block while a route to its pool begins or ends.
#[test]
fn h14_a_tracker_that_panics_when_a_route_begins_or_ends_keeps_no_pool() {
    for ends in [false, true] {
        let (test, [stream, side]) =
            TestAllocator::of(64 * MIB, "expandable_segments:False,graph_capture_record_stream_reuse:True")
                .with_streams();
        let pool = test.allocator.create_capture_pool();
        let memory = pool.allocate(MIB, &stream).expect("there is room");
        let hold = test.hold(&side);
        test.fill(&memory, 1, &side);
        memory.record_stream(&side);
        drop(memory);
        let begin = || pool.begin_capture(&stream, CaptureMode::Relaxed);
        let capture = ends.then(|| begin().expect("it begins"));
        let_pass(hold, &side);
        let armed = panic_at(&test, TraceAction::FreeCompleted);
        let ended = match capture {
            Some(capture) => panics(|| drop(capture.end())),
            None => panics(|| drop(begin())),
        };
        assert!(ended, "the tracker panics");
        armed.store(false, SeqCst);
        drop((pool, stream, side));
        test.allocator.empty_cache().expect("the driver answers");
        assert_eq!(test.allocator.reserved_bytes(), 0, "at the end: {ends}");
        test.assert_returns_everything();
    }
}

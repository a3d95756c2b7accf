//! One request at a time plans and maps memory. What it finds in its turn is current, and nobody waits for it in vain.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use cachette::hal::{Call, CaptureMode, Device, ErrorKind};
use cachette::{Allocator, TraceAction, TraceEvent};
use cachette_hal::traced::DriverCall;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{PATIENCE, Started, is_waiting, start, start_named};
use crate::fixture::{ELASTIC, MIB, Stream, TestAllocator};

/// Requests memory on another thread, which sends whether it was served.
fn request(allocator: &Allocator, bytes: u64, stream: &Stream) -> Started<bool> {
    let (allocator, stream) = (allocator.clone(), stream.clone());
    start(move || allocator.allocate(bytes, &stream).is_ok())
}

#[test]
fn a_request_that_waits_to_map_memory_uses_what_was_freed_meanwhile() {
    for used_elsewhere in [false, true] {
        let (test, hook) = TestAllocator::hooked(HostConfig::default().stepped(5), ELASTIC);
        let [growing, waiting, side] = test.streams();
        let freed = test.allocate(4 * MIB, &waiting);
        let (device, also, (served, result)) = (test.device.clone(), test.allocator.clone(), mpsc::channel());
        hook.set(Call::CreateBacking, None, move || {
            // This stream is mapping memory, and another one needs some, too.
            let second = request(&also, 4 * MIB, &waiting);
            let is_waiting = is_waiting(&second);
            served.send((is_waiting, second)).expect("the test waits");
            if used_elsewhere {
                // The memory is pending until someone asks whether the side stream has finished.
                freed.record_stream(&side);
            }
            drop(freed);
            device.run_until_idle();
        });
        let memory = test.allocate(8 * MIB, &growing);
        let (is_waiting, second) = result.recv().expect("memory was created");
        assert!(is_waiting);
        assert_eq!(second.recv_timeout(PATIENCE), Ok(true));
        assert_eq!(test.allocator.stats().reserved_bytes.all.peak, 12 * MIB, "used elsewhere: {used_elsewhere}");
        drop(memory);
    }
}

/// A sink that sends a message at the first event that is `wanted`, and then waits for a lock of the program.
pub(crate) fn waiting_sink(
    test: &TestAllocator,
    wanted: impl Fn(&TraceEvent) -> bool + Send + Sync + 'static,
) -> (Arc<Mutex<()>>, mpsc::Receiver<()>) {
    let (log, (entered, in_sink)) = (Arc::new(Mutex::new(())), mpsc::channel());
    let (inside, first) = (Arc::clone(&log), AtomicBool::new(true));
    test.allocator.track(move |event| {
        if wanted(event) && first.swap(false, SeqCst) {
            entered.send(()).expect("the test waits");
            drop(inside.lock());
        }
    });
    (log, in_sink)
}

#[test]
fn a_sink_that_hears_of_a_donors_free_stops_no_other_stream() {
    let test = TestAllocator::elastic("");
    let [owner, side, late, other] = test.streams();
    let freed = test.allocate(4 * MIB, &owner);
    freed.record_stream(&side);
    drop(freed);
    test.device.run_until_idle();
    let (log, in_sink) = waiting_sink(&test, |event| event.action == TraceAction::FreeCompleted);
    let held = log.lock().unwrap();
    let _late = request(&test.allocator, 8 * MIB, &late);
    in_sink.recv_timeout(PATIENCE).expect("the request asks the donor");
    assert_eq!(request(&test.allocator, 2 * MIB, &other).recv_timeout(PATIENCE), Ok(true));
    drop(held);
}

#[test]
fn a_sink_that_hears_of_a_block_found_after_a_wait_stops_no_other_stream() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default().stepped(5), ELASTIC);
    let [growing, waiting, third] = test.streams();
    let freed = test.allocate(4 * MIB, &waiting);
    let (address, also) = (freed.address(), test.allocator.clone());
    let (log, in_sink) =
        waiting_sink(&test, move |event| event.action == TraceAction::Alloc && event.address == address);
    let held = log.lock().unwrap();
    hook.set(Call::CreateBacking, None, move || {
        is_waiting(&request(&also, 4 * MIB, &waiting));
        drop(freed);
    });
    let memory = test.allocate(8 * MIB, &growing);
    in_sink.recv_timeout(PATIENCE).expect("the waiting request found the freed block");
    assert_eq!(request(&test.allocator, 2 * MIB, &third).recv_timeout(PATIENCE), Ok(true));
    drop((held, memory));
}

#[test]
fn a_sink_that_panics_in_a_turn_loses_no_block() {
    let test = TestAllocator::elastic("");
    let [owner, side, late] = test.streams();
    let freed = test.allocate(4 * MIB, &owner);
    freed.record_stream(&side);
    drop(freed);
    test.device.run_until_idle();
    let armed = Arc::new(AtomicBool::new(true));
    let also = Arc::clone(&armed);
    test.allocator.track(move |event| {
        let panics = event.action == TraceAction::FreeCompleted && also.load(SeqCst);
        assert!(!panics, "this sink fails");
    });
    assert!(catch_unwind(AssertUnwindSafe(|| test.allocate(64 * MIB, &late))).is_err());
    armed.store(false, SeqCst);
    assert_eq!(test.allocator.allocated_bytes(), 0);
    drop(test.allocate(64 * MIB, &late));
    test.assert_returns_everything_after((owner, side, late));
}

#[test]
fn a_capture_that_begins_while_a_request_waits_does_not_fail_it() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default().stepped(5), ELASTIC);
    let [growing, waiting] = test.streams();
    let (idle, kept) = (test.allocate(2 * MIB, &waiting), test.allocate(2 * MIB, &waiting));
    // A chunk that the next request of this stream would move. The stream is busy, so no other one gets it.
    drop(idle);
    test.fill(&kept, 1, &waiting);
    let (also, begun) = (test.allocator.clone(), Arc::new(Mutex::new(None)));
    let begins = Arc::clone(&begun);
    hook.set(Call::CreateBacking, None, move || {
        let result = request(&also, 4 * MIB, &waiting);
        is_waiting(&result);
        let capture = also.create_capture_pool().begin_capture(&waiting, CaptureMode::Relaxed).unwrap();
        *begins.lock().unwrap() = Some((result, capture));
    });
    let memory = test.allocate(8 * MIB, &growing);
    let (result, capture) = begun.lock().unwrap().take().expect("the capture has begun");
    assert_eq!(result.recv_timeout(PATIENCE), Ok(true));
    assert!(capture.end().is_ok());
    drop((memory, kept));
}

/// Returns whether another pool serves `second` while a request of `first` may wait for the device.
fn is_served_beside(test: &TestAllocator, first: &Stream, second: Stream) -> bool {
    let first = request(&test.allocator, 8 * MIB, first);
    // It waits, or has ended.
    is_waiting(&first);
    let pool = test.allocator.create_pool();
    start(move || pool.allocate(2 * MIB, &second).is_ok()).recv_timeout(PATIENCE) == Ok(true)
}

#[test]
fn a_stream_destroyed_too_early_makes_no_other_pool_wait_for_the_device() {
    let (test, [first, busy, second]) = TestAllocator::with(ELASTIC).with_streams();
    let early = test.device.create_stream().unwrap();
    // SAFETY: 1. the stream is live. 2. is broken below, on purpose.
    let own = unsafe { test.allocator.allocate_raw(4 * MIB, early.borrow()) }.unwrap();
    test.allocator.free_raw(own).unwrap();
    // SAFETY: 1. the stream was created above.
    unsafe { test.device.destroy_stream(early) }.unwrap();
    let memory = test.allocate(2 * MIB, &busy);
    let hold = test.hold(&busy);
    test.fill(&memory, 1, &busy);
    assert!(is_served_beside(&test, &first, second), "another pool waits for the device");
    hold.release();
}

#[test]
fn a_missing_fence_makes_no_other_pool_wait_for_the_device() {
    let (test, [own, busy, first, second]) = TestAllocator::with(ELASTIC).with_streams();
    let gone = test.device.create_stream().unwrap();
    let memory = test.allocate_raw(4 * MIB, &own);
    // SAFETY: 1. the stream is live. 2. is broken below, on purpose.
    unsafe { test.allocator.record_stream_raw(memory, gone.borrow()) }.unwrap();
    let used = test.allocate(2 * MIB, &busy);
    let graphs = test.allocator.create_capture_pool();
    let capture = graphs.begin_capture(&own, CaptureMode::Relaxed).unwrap();
    // No fence is recorded during the capture, and later the stream is gone.
    test.allocator.free_raw(memory).unwrap();
    drop(capture.end().unwrap());
    // SAFETY: 1. the stream was created above.
    unsafe { test.device.destroy_stream(gone) }.unwrap();
    let hold = test.hold(&busy);
    test.fill(&used, 1, &busy);
    assert!(is_served_beside(&test, &first, second), "another pool waits for the device");
    hold.release();
}

#[test]
fn a_request_gets_what_a_failed_one_held() {
    let test = TestAllocator::on(HostConfig::default().capacity(8 * MIB).refusing_aliases(1), ELASTIC);
    let [one, two, live, first, second] = test.streams();
    let _live = test.allocate(2 * MIB, &live);
    // 6 of 8 MiB are free: an idle chunk of each of two streams, and 2 MiB of the device.
    drop((test.allocate(2 * MIB, &one), test.allocate(2 * MIB, &two)));
    let (log, in_sink) = waiting_sink(&test, |event| event.action == TraceAction::SegmentUnmap);
    let held = log.lock().unwrap();
    // The driver does not map one of the two chunks back after the request has failed.
    test.device.fail_next(Call::Map, 6, ErrorKind::Other);
    let failed = request(&test.allocator, 8 * MIB, &first);
    in_sink.recv_timeout(PATIENCE).expect("a chunk is lost");
    let served = request(&test.allocator, 6 * MIB, &second).recv_timeout(PATIENCE);
    drop(held);
    assert_eq!((served, failed.recv_timeout(PATIENCE)), (Ok(true), Ok(false)));
}

/// A function that a driver call triggers once.
type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

#[test]
fn a_request_gets_what_a_pool_left_while_it_waited() {
    gets_what_was_freed_meanwhile(|test, stream| {
        let pool = test.allocator.create_pool();
        let memory = pool.allocate(48 * MIB, stream).unwrap();
        Box::new(move || drop((pool, memory)))
    });
}

#[test]
fn a_request_gets_what_another_stream_finished_while_it_waited() {
    gets_what_was_freed_meanwhile(|test, stream| {
        let (memory, side) = (test.allocate(48 * MIB, stream), test.stream());
        Box::new(move || {
            memory.record_stream(&side);
            drop(memory);
        })
    });
}

/// A request waits for its turn while another thread frees the memory that `hold` has allocated on a stream.
fn gets_what_was_freed_meanwhile(hold: impl Fn(&TestAllocator, &Stream) -> Box<dyn FnOnce() + Send>) {
    // The thread is disturbed at each query of its stream's capture in turn. One of them precedes its last attempt.
    for nth in 1..=5 {
        let (queries, on_query, on_create) = (Arc::new(AtomicU64::new(u64::MAX)), Hook::default(), Hook::default());
        let (left, query, create) = (Arc::clone(&queries), Arc::clone(&on_query), Arc::clone(&on_create));
        let observer = move |call: &DriverCall| {
            let hook = match (call.call, thread::current().name()) {
                (Call::CaptureStatus, Some("waits")) if left.fetch_sub(1, SeqCst) == 1 => &query,
                (Call::CreateBacking, Some("maps")) => &create,
                _ => return,
            };
            let act = hook.lock().expect("no thread panicked").take();
            if let Some(act) = act {
                act();
            }
        };
        let host = HostConfig::default().capacity(64 * MIB).stepped(5);
        // Retry steps that wait could also serve the request.
        let test = TestAllocator::traced(host, &format!("{ELASTIC},never_block:True"), observer);
        let [inside, waits, maps] = test.streams();
        let free = hold(&test, &inside);
        let (device, (mapping, is_mapping)) = (test.device.clone(), mpsc::channel());
        let (also, (go, begin)) = (test.allocator.clone(), mpsc::channel::<()>());
        let request = start_named("waits", move || {
            begin.recv().expect("the test sends it");
            also.allocate(32 * MIB, &waits).map(std::mem::forget)
        });
        let thread = request.thread.clone();
        *on_create.lock().expect("no thread panicked") = Some(Box::new(move || {
            // The other thread may not wait for this message any more.
            let _ = mapping.send(());
            let _ = thread.is_blocked();
            free();
            device.run_until_idle();
        }));
        let (also, waited) = (test.allocator.clone(), Arc::new(AtomicBool::new(false)));
        let will_wait = Arc::clone(&waited);
        *on_query.lock().expect("no thread panicked") = Some(Box::new(move || {
            let map = start_named("maps", move || also.allocate(2 * MIB, &maps).map(std::mem::forget));
            // It has sent the message, or waits for this thread, which has its turn already.
            is_waiting(&map);
            will_wait.store(is_mapping.try_recv().is_ok(), SeqCst);
        }));
        queries.store(nth, SeqCst);
        go.send(()).expect("the thread waits for it");
        let served = request.recv_timeout(PATIENCE).expect("it returns");
        assert!(served.is_ok() || !waited.load(SeqCst), "query {nth}: {:?}", served.err());
    }
}

//! Pinned memory that streams use: it is reused once their events have passed.

use std::time::{Duration, Instant};

use cachette::hal::Call;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{PATIENCE, in_time};
use crate::fixture::{Allocation, Stream, TestAllocator, config, let_pass};
use crate::pinned::{Staged, WHOLE};

impl TestAllocator {
    /// Queues a copy of pinned memory to the device, as large as both.
    pub(crate) fn upload(&self, to: &Allocation, from: &Staged, stream: &Stream) {
        use cachette::hal::Device;
        let transfer = self.device.transfer().expect("the host device copies");
        let at = to.ptr().expect("the memory has an address");
        let source = from.ptr().as_ptr();
        let bytes = usize::try_from(from.requested()).expect("the memory exists");
        // SAFETY: 1. the stream is live. 3. the memory is allocated. 4. the test writes only after the copy.
        unsafe { transfer.upload(at, source, bytes, stream.handle()) }.expect("a copy is queued");
    }
}

/// Frees pinned memory that `stream` uses; where it was.
fn free_in_use(test: &TestAllocator, stream: &Stream) -> usize {
    let memory = test.pin(WHOLE);
    memory.record_stream(stream);
    memory.ptr().addr().get()
}

#[test]
fn n3_memory_in_use_serves_after_the_stream_has_passed() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let held = test.hold(&stream);
        let used = free_in_use(&test, &stream);
        let other = test.pin(WHOLE);
        assert_ne!(other.ptr().addr().get(), used, "the copy is in flight");
        let stats = test.allocator.pinned().stats();
        assert_eq!(stats.active_requests.current, 2, "what waits is active");
        drop(held);
        test.device.run_until_idle();
        stream.synchronize().expect("it runs dry");
        assert_eq!(test.pin(WHOLE).ptr().addr().get(), used);
        test.assert_returns_everything_after((other, stream));
    }
}

#[test]
fn n3_memory_waits_for_every_stream_with_one_event_each() {
    let (test, [left, right]) = TestAllocator::on(HostConfig::default().stepped(2), "").with_streams();
    let memory = test.pin(WHOLE);
    let at = memory.ptr();
    for stream in [&left, &right, &left] {
        memory.record_stream(stream);
    }
    let (held_left, held_right) = (test.hold(&left), test.hold(&right));
    assert_eq!(test.calls_of(Call::Record, || drop(memory)), 2);
    drop(held_left);
    test.device.run_until_idle();
    assert_ne!(test.pin(WHOLE).ptr(), at, "the right stream has not passed");
    drop(held_right);
    test.device.run_until_idle();
    let both = [(); 2].map(|()| test.pin(WHOLE));
    assert!(both.iter().any(|memory| memory.ptr() == at));
    drop(both);
    test.assert_returns_everything_after((left, right));
}

#[test]
fn n3_a_hit_asks_for_nothing() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let held = test.hold(&stream);
    free_in_use(&test, &stream);
    drop(test.pin(WHOLE));
    assert_eq!(test.calls_during(|| drop(test.pin(WHOLE))), 0);
    drop(held);
}

#[test]
fn n3_uses_can_be_recorded_by_address() {
    let (test, [stream]) = TestAllocator::on(HostConfig::default().stepped(2), "").with_streams();
    let pinned = test.allocator.pinned();
    let raw = pinned.allocate_raw(WHOLE).expect("there is room");
    let held = test.hold(&stream);
    // SAFETY: 1. 2. the stream is the allocator's own.
    unsafe { pinned.record_stream_raw(raw, &test.allocator, stream.handle()) }.expect("it is allocated");
    assert_eq!(pinned.free_raw(raw), Ok(()));
    assert_ne!(test.pin(WHOLE).ptr().as_ptr(), raw);
    drop(held);
    test.device.run_until_idle();
    let both = [(); 2].map(|()| test.pin(WHOLE));
    assert!(both.iter().any(|memory| memory.ptr().as_ptr() == raw));
}

#[test]
fn n3_a_use_of_memory_that_another_thread_frees_meanwhile_is_dropped() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), "");
    let (stream, pinned) = (test.stream(), test.allocator.pinned());
    let raw = pinned.allocate_raw(WHOLE).expect("there is room");
    let (allocator, address) = (test.allocator.clone(), raw.addr());
    let freed = hook.start(Call::CaptureStatus, None, move || {
        allocator.pinned().free_raw(std::ptr::with_exposed_provenance_mut(address))
    });
    // SAFETY: 1. 2. the stream is the allocator's own.
    unsafe { pinned.record_stream_raw(raw, &test.allocator, stream.handle()) }.expect("it was allocated");
    assert_eq!(freed.result(), Ok(()));
    test.allocator.check().expect("every invariant holds");
    test.assert_returns_everything_after(stream);
}

#[test]
fn n3_streams_of_other_devices_are_waited_for() {
    let [here, there] = TestAllocator::two_devices();
    let stream = there.stream();
    let held = there.hold(&stream);
    let memory = here.pin(WHOLE);
    let at = memory.ptr();
    memory.record_stream(&stream);
    drop(memory);
    assert_ne!(here.pin(WHOLE).ptr(), at);
    let_pass(held, &stream);
    let both = [(); 2].map(|()| here.pin(WHOLE));
    assert!(both.iter().any(|memory| memory.ptr() == at));
}

#[test]
fn n3_raw_memory_waits_for_streams_of_other_devices() {
    let [here, there] = TestAllocator::two_devices();
    let (stream, pinned) = (there.stream(), here.allocator.pinned());
    let held = there.hold(&stream);
    let raw = pinned.allocate_raw(WHOLE).expect("there is room");
    // SAFETY: the stream lives until the end of the test.
    unsafe { pinned.record_stream_raw(raw, &there.allocator, stream.handle()) }.expect("it is allocated");
    assert_eq!(pinned.free_raw(raw), Ok(()));
    assert_ne!(here.pin(WHOLE).ptr().as_ptr(), raw);
    let_pass(held, &stream);
    let both = [(); 2].map(|()| here.pin(WHOLE));
    assert!(both.iter().any(|memory| memory.ptr().as_ptr() == raw));
}

/// Whether nothing is active in the end, though no request is made.
fn becomes_idle(test: &TestAllocator) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if test.allocator.pinned().stats().active_requests.current == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn n3_a_background_thread_frees_and_ends_with_the_allocator() {
    let (test, [stream]) = TestAllocator::with("pinned_use_background_threads:True").with_streams();
    for _ in 0..3 {
        let held = test.hold(&stream);
        free_in_use(&test, &stream);
        let (polls, begun) = (test.device.calls(Call::Poll), Instant::now());
        while test.device.calls(Call::Poll) < polls + 2 {
            assert!(begun.elapsed() < PATIENCE, "the background thread polls");
            std::thread::yield_now();
        }
        let stats = test.allocator.pinned().stats();
        assert_eq!(stats.active_requests.current, 1, "the stream is held");
        drop(held);
        assert!(becomes_idle(&test));
    }
    // It may be about to look once more.
    let begun = Instant::now();
    while test.calls_during(|| std::thread::sleep(Duration::from_millis(5))) > 0 {
        assert!(begun.elapsed() < PATIENCE, "it sleeps while nothing waits");
    }
    drop(stream);
    in_time(move || test.assert_returns_everything()).expect("nothing hangs");
}

#[test]
fn n3_a_background_thread_does_not_keep_the_allocator_alive() {
    let (test, [stream]) = TestAllocator::with("pinned_use_background_threads:True").with_streams();
    let held = test.hold(&stream);
    free_in_use(&test, &stream);
    let released = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
    });
    drop(stream);
    in_time(move || test.assert_returns_everything()).expect("nothing hangs");
    released.join().expect("it ends");
}

#[test]
fn n3_the_background_thread_can_be_switched_on_and_off() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let held = test.hold(&stream);
    free_in_use(&test, &stream);
    let_pass(held, &stream);
    let stats = test.allocator.pinned().stats();
    assert_eq!(stats.active_requests.current, 1, "no request has processed the events");
    for text in ["pinned_use_background_threads:True", "", "pinned_use_background_threads:True"] {
        test.allocator.set_config(&config(text));
        free_in_use(&test, &stream);
        if text.is_empty() {
            drop([(); 3].map(|()| test.pin(WHOLE)));
        }
        assert!(becomes_idle(&test), "{text}");
    }
}

#[test]
fn n3_memory_of_an_idle_stream_serves_beside_that_of_a_busy_one() {
    let (test, [busy, idle]) = TestAllocator::new().with_streams();
    let held = test.hold(&busy);
    let first = free_in_use(&test, &busy);
    let second = free_in_use(&test, &idle);
    assert_ne!(second, first);
    idle.synchronize().unwrap();
    assert_eq!(test.pin(WHOLE).ptr().addr().get(), second);
    drop(held);
}

#[test]
fn n3_one_poll_tells_that_a_stream_is_busy() {
    let (test, [busy]) = TestAllocator::new().with_streams();
    let held = test.hold(&busy);
    for _ in 0..5 {
        free_in_use(&test, &busy);
    }
    assert_eq!(test.calls_of(Call::Poll, || drop(test.pin(WHOLE))), 1);
    let_pass(held, &busy);
    let memory = [(); 5].map(|()| test.pin(WHOLE));
    assert_eq!(test.allocator.pinned().stats().active_requests.current, 5, "none waits any more");
    drop(memory);
}

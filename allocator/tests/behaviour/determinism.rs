//! The same requests get the same places in segments, independent of addresses.

use std::sync::{Arc, Mutex};

use cachette::TraceAction;
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, GIB, KIB, MIB, Stream, TestAllocator};

/// Where an allocation lies: the number of its segment, in the order they were obtained, and the offset in it.
type Place = (Option<usize>, u64);

/// The places that a fixed sequence of requests gets.
fn places(test: &TestAllocator, seed: u64) -> Vec<Place> {
    let segments: Arc<Mutex<Vec<u64>>> = Arc::default();
    let log = Arc::clone(&segments);
    test.allocator.track(move |event| {
        if event.action == TraceAction::SegmentAlloc {
            log.lock().expect("no test holds it").push(event.address);
        }
    });
    let streams = test.streams::<3>();
    let mut random = seed;
    let mut live: Vec<Allocation> = Vec::new();
    let mut found = Vec::new();
    for _ in 0..1500 {
        let memory = step(test, &streams, &mut random, &mut live);
        if let Some(memory) = memory {
            let (base, _) = test.allocator.base_allocation(memory.address()).expect("it is live");
            let segments = segments.lock().expect("no tracker holds it");
            let number = segments.iter().rposition(|start| *start == base);
            found.push((number, memory.address() - base));
            live.push(memory);
        }
    }
    test.assert_sound();
    found
}

/// One request or one free, drawn from `random`.
fn step(test: &TestAllocator, streams: &[Stream], random: &mut u64, live: &mut Vec<Allocation>) -> Option<Allocation> {
    let mut draw = |below: u64| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % below
    };
    let index = |drawn: u64| usize::try_from(drawn).expect("it is small");
    let sizes = [512, 3 * KIB, 100 * KIB, MIB, 3 * MIB, 9 * MIB, 14 * MIB];
    if !live.is_empty() && draw(5) < 2 {
        let memory = live.swap_remove(index(draw(live.len() as u64)));
        match draw(3) {
            0 => memory.record_stream(&streams[index(draw(3))]),
            1 => memory.release_after(&[&streams[index(draw(3))]]).expect("nothing fails"),
            _ => {}
        }
        return None;
    }
    let bytes = sizes[index(draw(7))] + draw(1000);
    Some(test.allocate(bytes, &streams[index(draw(3))]))
}

/// A device whose allocations begin at other addresses, and are aligned otherwise.
fn elsewhere(settings: &str) -> TestAllocator {
    let host = HostConfig::default().capacity(16 * GIB).phantom(true).base_alignment(64 * MIB);
    let (test, [stream]) = TestAllocator::on(host, settings).with_streams();
    drop(test.allocate(300 * MIB, &stream));
    drop(stream);
    test.allocator.empty_cache().expect("nothing fails");
    test
}

#[test]
fn s9_the_same_requests_get_the_same_places_in_every_allocator() {
    for text in ["", "max_split_size_mb:20,large_segment_size_mb:16"] {
        for seed in [1, 2, 3] {
            let first = places(&TestAllocator::phantom(16 * GIB, text), seed);
            let second = places(&TestAllocator::phantom(16 * GIB, text), seed);
            assert_eq!(first, second, "{text}");
            assert!(first.len() > 800);
        }
    }
}

#[test]
fn s9_addresses_play_no_part() {
    let here = places(&TestAllocator::phantom(16 * GIB, ""), 4);
    assert_eq!(here, places(&elsewhere(""), 4));
}

#[test]
fn s9_equals_serve_in_one_order_whether_addresses_rise_or_fall() {
    let served = |falling: bool| {
        let (test, [spare, stream]) = TestAllocator::phantom(GIB, "").with_streams();
        if falling {
            // Phantom addresses come back last in, first out, so that of the next two the second is lower.
            let both = [0; 2].map(|_| test.allocate(12 * MIB, &spare));
            drop(both);
            test.allocator.empty_cache().unwrap();
        }
        let both = [0; 2].map(|_| test.allocate(12 * MIB, &stream));
        let addresses = both.each_ref().map(Allocation::address);
        assert_eq!(addresses[1] < addresses[0], falling);
        drop(both);
        // A request of another size, so that neither is merely the one freed last.
        drop(test.allocate(512, &stream));
        let next = test.allocate(12 * MIB, &stream).address();
        addresses.iter().position(|address| *address == next)
    };
    assert!(served(true).is_some());
    assert_eq!(served(true), served(false));
}

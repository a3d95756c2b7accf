//! Events are few, are used again, and are asked only when something waits for them.

use std::sync::Arc;

use cachette::Allocator;
use cachette::hal::Call;
use cachette_hal_host::HostConfig;
use cachette_hal_testing::Traced;
use cachette_hal_testing::traced::Counts;

use crate::bed::{Bed, KIB, MIB, device};

#[test]
fn s10_a_hit_makes_no_driver_call() {
    let counts = Arc::new(Counts::new());
    let traced = Traced::new(device(HostConfig::default()), Arc::clone(&counts));
    let allocator = Allocator::new(traced);
    let stream = allocator.create_stream().unwrap();
    let sizes = [1, 512, 700 * KIB, 3 * MIB, 12 * MIB];
    for bytes in sizes {
        drop(allocator.allocate(bytes, &stream).unwrap());
    }
    let before = counts.total();
    for bytes in sizes.into_iter().cycle().take(1000) {
        drop(allocator.allocate(bytes, &stream).unwrap());
    }
    assert_eq!(counts.total(), before, "{counts}");
    assert_eq!(counts.of(Call::Poll), 0);
    assert_eq!(counts.of(Call::CreateEvent), 0);
}

#[test]
fn e4_events_are_used_again() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    for _ in 0..500 {
        let memory = bed.allocate(KIB, &stream);
        memory.record_stream(&side);
    }
    assert!(bed.device.calls(Call::CreateEvent) <= 2, "{} events", bed.device.calls(Call::CreateEvent));
    assert_eq!(bed.device.calls(Call::Record), 500);
    assert_eq!(bed.device.calls(Call::DestroyEvent), 0);
}

#[test]
fn e4_there_are_as_many_events_as_uses_wait_at_once() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    for _ in 0..10 {
        let hold = bed.hold(&side);
        let blocks: Vec<_> = (0..8).map(|_| bed.allocate(KIB, &stream)).collect();
        for block in blocks {
            block.record_stream(&side);
        }
        hold.release();
        side.synchronize().unwrap();
        drop(bed.allocate(KIB, &stream));
    }
    assert_eq!(bed.device.live().events, 8);
    drop((stream, side));
    bed.assert_returns_everything();
}

#[test]
fn e3_nothing_is_asked_when_nothing_waits() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(KIB, &stream);
    memory.record_stream(&side);
    drop(memory);
    drop(bed.allocate(KIB, &stream));
    let calls = bed.calls_during(|| {
        for bytes in [KIB, 2 * KIB, 100 * KIB, KIB] {
            drop(bed.allocate(bytes, &stream));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn e3_one_streams_waiting_blocks_cost_another_stream_nothing() {
    let bed = Bed::new();
    let (stream, side, busy) = (bed.stream(), bed.stream(), bed.stream());
    drop(bed.allocate(KIB, &side));
    let memory = bed.allocate(KIB, &stream);
    let hold = bed.hold(&busy);
    memory.record_stream(&busy);
    drop(memory);
    assert_eq!(bed.calls_during(|| drop(bed.allocate(KIB, &side))), 0);
    hold.release();
}

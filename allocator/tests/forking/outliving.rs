//! A forked child does not touch objects that outlive their allocator.

use std::thread;

use super::child::in_child;
use super::held::Held;

#[test]
fn what_outlived_its_allocator_is_dropped_in_silence() {
    let held = Held::new();
    held.allocator.free_raw(held.raw).unwrap();
    held.allocator.free_raw(held.uncached_raw).unwrap();
    held.allocator.pinned().free_raw(held.pinned_raw).unwrap();
    let Held {
        device,
        stream,
        memory,
        used,
        uncached,
        buffer,
        event,
        pinned,
        allocator,
        pool,
        pooled,
        resident,
        asleep,
        slept,
        growable,
        graph,
        capture,
        ..
    } = held;
    drop((allocator, pool, pooled, graph, capture));
    let mut left = Some(((stream, memory, used, uncached, buffer, event, pinned), (resident, asleep, slept, growable)));
    in_child(|| drop(left.take()));
    in_child(|| {
        let left = left.take();
        thread::spawn(move || drop(left)).join().unwrap();
    });
    drop(left);
    assert_eq!(device.physical_bytes(), 0);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
}

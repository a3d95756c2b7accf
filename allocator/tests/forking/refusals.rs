//! What each call returns in a child.

use std::fmt::Debug;
use std::thread;

use cachette::hal::{CaptureMode, ErrorKind, StreamRef};
use cachette::pool::Filter;
use cachette::sleep::Contents;
use cachette::{Config, Error, PinnedStats, Pool, PoolOptions, Stats};

use super::child::in_child;
use super::held::{BYTES, Held, allocate_raw, config};

/// The call was refused because of the fork.
fn refused<T: Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Forked) => {}
        other => panic!("{other:?} is no refusal"),
    }
}

/// Asks for everything that can be refused.
fn ask_for_everything(held: &mut Held) {
    let Held { allocator, stream, .. } = &*held;
    refused(allocator.allocate(BYTES, stream));
    refused(allocator.allocate(3 << 20, stream));
    refused(allocate_raw(allocator, stream.handle()));
    refused(allocate_raw(allocator, StreamRef::from_raw(0x5000)));
    refused(allocator.allocate_buffer::<u8>(16, stream));
    refused(allocator.create_stream());
    refused(allocator.default_stream());
    refused(allocator.empty_cache());
    refused(allocator.set_memory_fraction(0.5));
    refused(allocator.base_allocation(held.raw));
    // SAFETY: 1. 2. the stream is this allocator's own, and lives as long as it.
    refused(unsafe { allocator.record_stream_raw(held.raw, stream.handle()) });
    assert!(allocator.check().unwrap_err().contains("forked"));
    refused(allocator.pinned().allocate(4096));
    refused(allocator.pinned().allocate_raw(4096));
    refused(allocator.pinned().empty_cache());
    refused(held.pinned.device_address());
    // SAFETY: 1. 2. the stream is this allocator's own, and lives as long as it.
    refused(unsafe { allocator.pinned().record_stream_raw(held.pinned_raw, stream.handle()) });
    let lost = stream.synchronize().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::DeviceLost);
    let lost = allocator.largest_available().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::DeviceLost);
    refused(held.buffer.read());
    refused(held.buffer.write(&[1; 16]));
    refused(held.buffer.fill(0));
}

/// Asks pools and graphs for everything that can be refused.
fn ask_pools(held: &Held) {
    let Held { allocator, stream, pool, .. } = held;
    for pool in [pool, &allocator.create_pool()] {
        refused(pool.allocate(BYTES, stream));
        refused(pool.enter(stream));
        refused(pool.empty_cache());
        refused(pool.checkpoint());
        refused(pool.sleep(Contents::Keep));
        refused(pool.wake());
        refused(pool.begin_capture(stream, CaptureMode::Relaxed));
        refused(allocator.open_pool(pool.id()));
        refused(allocator.begin_allocate_to_pool(pool.id(), Filter::All));
        refused(allocator.end_allocate_to_pool(pool.id()));
        let inside = pool.enter_all();
        refused(allocator.allocate(BYTES, stream));
        refused(allocate_raw(allocator, stream.handle()));
        drop(inside);
    }
    refused(pool.restore(&held.checkpoint));
    refused(allocator.create_pool_with(PoolOptions::new()));
    refused(allocator.sleep_tagged("all", Contents::Discard));
    refused(allocator.wake_tagged("all"));
    // SAFETY: 1. the graph is empty. 2. No other runs. 3. The stream is of this allocator.
    refused(unsafe { held.graph.launch(stream) });
}

/// Makes every call that has no way to refuse.
fn ask_the_rest(held: &Held) {
    let Held { allocator, stream, .. } = held;
    held.memory.record_stream(stream);
    held.pinned.record_stream(stream);
    allocator.set_config(&config("max_split_size_mb:64"));
    held.pool.set_no_split(true);
    allocator.on_out_of_memory(|_| {});
    allocator.on_pressure(|| true);
    allocator.track(|_| {});
    allocator.on_leak(|_| {});
    allocator.reset_peaks();
    allocator.reset_totals();
    allocator.pinned().reset_peak_stats();
    allocator.pinned().reset_accumulated_stats();
    held.pool.keep();
    held.pool.mark_external_graph_use();
    held.pool.set_use_on_oom(true);
    assert_eq!(allocator.config(), Config::default());
    assert_eq!(allocator.stats(), Stats::default());
    assert_eq!(allocator.metrics().device_memory, None);
    assert_eq!(allocator.pinned().stats(), PinnedStats::default());
    assert_eq!(allocator.allocated_bytes(), 0);
    assert_eq!(allocator.reserved_bytes(), 0);
    assert_eq!(allocator.largest_free(), 0);
    assert_eq!(allocator.release_contents(), 0);
    assert_eq!(allocator.raw_allocations(), []);
    assert_eq!(allocator.elastic_segments(), []);
    assert_eq!(held.pool.stats().allocations, 0);
    assert!(held.pool.check_live_allocations(&[]));
    assert!(format!("{allocator:?}").contains("Allocator"));
}

/// Frees everything, in every way that there is.
pub(crate) fn free_everything(held: Held) {
    let Held { allocator, stream, .. } = &held;
    for address in [held.raw, held.uncached_raw, 0x1234] {
        assert_eq!(allocator.free_raw(address), Ok(()));
        assert_eq!(allocator.free_raw(address), Ok(()), "freed or not");
    }
    assert_eq!(allocator.pinned().free_raw(held.pinned_raw), Ok(()));
    drop(stream.clone());
    let Held { allocator, memory, used, uncached, pinned, capture, stream, pooled, .. } = held;
    drop(allocator);
    let (address, pooled_address) = (memory.address(), pooled.address());
    assert_eq!(memory.into_raw(), address);
    assert_eq!(pooled.into_raw(), pooled_address);
    assert_eq!(used.release_after(&[&stream]), Ok(()));
    let start = pinned.ptr().as_ptr();
    assert_eq!(pinned.into_raw(), start);
    drop((uncached, stream));
    assert_eq!(capture.end().unwrap_err(), Error::Forked);
}

/// Makes every call there is, and drops everything.
pub(crate) fn do_everything(mut held: Held) {
    ask_for_everything(&mut held);
    ask_pools(&held);
    ask_the_rest(&held);
    free_everything(held);
}

#[test]
fn every_call_is_answered_and_the_parent_notices_nothing() {
    let mut held = Some(Held::new());
    let before = held.as_ref().map(|held| held.allocator.stats());
    in_child(|| do_everything(held.take().unwrap()));
    let held = held.unwrap();
    assert_eq!(Some(held.allocator.stats()), before);
    assert_eq!(held.buffer.read().unwrap(), [7; 16]);
    assert!(held.allocator.allocate(BYTES, &held.stream).is_ok());
    held.assert_returns_everything();
}

#[test]
fn dropping_everything_is_silent() {
    let mut held = Some(Held::new());
    in_child(|| drop(held.take()));
    in_child(|| {
        let held = held.take().unwrap();
        drop((held.memory, held.uncached, held.pinned));
    });
    held.unwrap().assert_returns_everything();
}

#[test]
fn threads_of_a_child_are_refused_too() {
    let mut held = Some(Held::new());
    in_child(|| {
        let held = held.take().unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    refused(held.allocator.allocate(BYTES, &held.stream));
                    refused(allocate_raw(&held.allocator, held.stream.handle()));
                    ask_pools(&held);
                    ask_the_rest(&held);
                    assert_eq!(held.allocator.free_raw(held.raw), Ok(()));
                });
            }
        });
        let Held { memory, pinned, .. } = held;
        thread::spawn(|| drop((memory, pinned))).join().unwrap();
    });
    held.unwrap().assert_returns_everything();
}

#[test]
fn a_pool_entered_before_the_fork_refuses_and_can_be_left() {
    let held = Held::new();
    let inside = held.pool.enter(&held.stream).unwrap();
    drop(held.allocator.allocate(BYTES, &held.stream).unwrap());
    let mut inside = Some(inside);
    in_child(|| {
        refused(held.allocator.allocate(BYTES, &held.stream));
        drop(inside.take());
        refused(held.allocator.allocate(BYTES, &held.stream));
    });
    drop(inside);
    held.assert_returns_everything();
}

#[test]
fn a_child_of_a_child_is_refused_by_both() {
    let mut held = Some(Held::new());
    in_child(|| {
        let mut own = Some(Held::new());
        in_child(|| {
            do_everything(held.take().unwrap());
            do_everything(own.take().unwrap());
            Held::new().assert_returns_everything();
        });
        refused(held.take().unwrap().allocator.create_stream());
        own.unwrap().assert_returns_everything();
    });
    held.unwrap().assert_returns_everything();
}

#[test]
fn the_error_says_what_to_do() {
    let text = Error::Forked.to_string();
    assert!(text.contains("forked") && text.contains("spawn or exec"), "{text}");
}

#[test]
fn a_pool_made_in_a_child_has_a_name_and_nothing_else() {
    let held = Held::new();
    in_child(|| {
        let pools: [Pool<_>; 2] = [held.allocator.create_pool(), held.allocator.create_capture_pool()];
        assert_ne!(pools[0].id(), pools[1].id());
        assert_eq!(pools[0].use_count(), 1);
    });
    held.assert_returns_everything();
}

//! The figures are those of the allocator.

use cachette_hal::Ordinal;

use super::*;
use crate::Target;
use crate::trace::Operation;

const MIB: u64 = 1 << 20;

/// 10 MiB, freed and asked for again; 100 bytes on another stream, never freed.
fn trace() -> Trace {
    let allocate = |slot, stream, bytes| Operation::Allocate { slot, stream, bytes };
    let first = allocate(0, 0, 10 * MIB);
    let operations = vec![first, Operation::Free { slot: 0 }, first, allocate(1, 1, 100)];
    Trace { operations, slots: 2, streams: 2, peak_requested: 10 * MIB + 100, ..Trace::default() }
}

/// 2 MiB on one stream, and once they are free as many on another.
fn handing_over() -> Trace {
    let allocate = |slot, stream| Operation::Allocate { slot, stream, bytes: 2 * MIB };
    let operations = vec![allocate(0, 0), Operation::Free { slot: 0 }, allocate(1, 1), Operation::Free { slot: 1 }];
    Trace { operations, slots: 2, streams: 2, peak_requested: 2 * MIB, ..Trace::default() }
}

/// A configuration, with direct segments unless it says otherwise.
fn config(text: &str) -> Config {
    let mut config = Config::builder().expandable_segments(false).build().unwrap();
    config.update(text).unwrap();
    config
}

fn replayed(capacity: u64, text: &str, limit: Option<u64>) -> (Outcome, usize, Target) {
    let target = Target::host(Ordinal(0), capacity).unwrap();
    let mut done = 0;
    let outcome = replay(&trace(), &target.device, &config(text), limit, &mut |more| {
        done += more;
    });
    (outcome, done, target)
}

#[test]
fn the_figures_are_those_of_the_allocator() {
    let (outcome, done, target) = replayed(1 << 30, "", None);
    assert_eq!(outcome.operations, 4);
    assert_eq!(outcome.peak_requested, 10 * MIB + 100);
    assert_eq!(outcome.peak_allocated, 10 * MIB + 512);
    // One segment of 10 MiB and one of 2 MiB: each a call that obtains it, one that asks whether the stream is
    // captured, and two around them so that no capture is invalidated.
    assert_eq!(outcome.peak_reserved, 12 * MIB);
    assert_eq!(outcome.driver_calls, 2 * 4);
    assert!((outcome.ratio - 1.2).abs() < 1e-3, "{outcome:?}");
    assert!(outcome.cold_ns_per_op.is_some_and(|ns| ns > 0.0));
    assert!(outcome.warm_ns_per_op.is_some_and(|ns| ns > 0.0));
    assert!(outcome.steady_ns_per_op.is_some_and(|ns| ns > 0.0));
    // Both segments are still there.
    assert_eq!(outcome.steady_driver_calls, Some(0));
    assert_eq!(outcome.error, None);
    assert_eq!(done, PASSES * 4);
    let memory = target.device.memory_info().unwrap();
    assert_eq!(memory.free, memory.total, "the replay kept memory");
}

#[test]
fn running_out_of_memory_keeps_the_figures_so_far() {
    let (outcome, _, target) = replayed(11 * MIB, "", None);
    let failure = outcome.error.clone().unwrap();
    assert_eq!((failure.pass, failure.operation), (Pass::First, 4));
    assert!(failure.is_out_of_memory());
    assert_eq!(outcome.peak_reserved, 10 * MIB);
    let times = [outcome.cold_ns_per_op, outcome.warm_ns_per_op, outcome.steady_ns_per_op];
    assert_eq!(times, [None; PASSES]);
    assert_eq!(outcome.steady_driver_calls, None);
    let memory = target.device.memory_info().unwrap();
    assert_eq!(memory.free, memory.total, "the replay kept memory");
}

#[test]
fn the_configuration_is_obeyed() {
    let (outcome, ..) = replayed(1 << 30, "memory_limit:4M", None);
    let failure = outcome.error.unwrap();
    assert_eq!(failure.operation, 1);
    assert!(failure.to_string().starts_with("operation 1 of the first pass failed: out of"));
}

#[test]
fn a_limit_stands_instead_of_the_configurations_own() {
    let (outcome, ..) = replayed(1 << 30, "memory_limit:4M", Some(10 * MIB));
    let failure = outcome.error.unwrap();
    assert_eq!((failure.pass, failure.operation), (Pass::First, 4));
    assert_eq!(outcome.limit, Some(10 * MIB));
}

#[test]
fn the_third_pass_counts_its_own_driver_calls() {
    // Nothing is kept: every pass asks the driver for the same.
    let (outcome, ..) = replayed(1 << 30, "caching:False", None);
    assert!(outcome.driver_calls >= 6, "{outcome:?}");
    assert_eq!(outcome.steady_driver_calls, Some(outcome.driver_calls));
}

#[test]
fn chunks_are_counted_as_they_are_made_and_as_they_move() {
    let (outcome, ..) = replayed(1 << 30, "", None);
    assert_eq!((outcome.created_chunks, outcome.moved_chunks), (0, 0));
    // Five chunks of 2 MiB for the first stream and one for the second; all of them stay.
    let (outcome, ..) = replayed(1 << 30, "expandable_segments:True,elastic_setting:compact", None);
    assert_eq!((outcome.created_chunks, outcome.moved_chunks), (6, 0));
    assert_eq!(outcome.steady_created_chunks, Some(0));
    assert_eq!(outcome.steady_moved_chunks, Some(0));
    // What is freed on the first stream serves the second.
    let target = Target::host(Ordinal(0), 1 << 30).unwrap();
    let config = "expandable_segments:True".parse().unwrap();
    let outcome = replay(&handing_over(), &target.device, &config, None, &mut |_| ());
    assert_eq!((outcome.created_chunks, outcome.moved_chunks), (1, 1));
}

#[test]
fn the_keys_are_those_promised() {
    let (good, ..) = replayed(1 << 30, "", None);
    let keys = |outcome: &Outcome| {
        let value = serde_json::to_value(outcome).unwrap();
        let keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.join(" ")
    };
    let promised = "cold_ns_per_op created_chunks driver_calls moved_chunks operations peak_allocated \
                    peak_requested peak_reserved ratio steady_created_chunks steady_driver_calls \
                    steady_moved_chunks steady_ns_per_op warm_ns_per_op";
    assert_eq!(keys(&good), promised);
    let (bad, ..) = replayed(MIB, "", Some(MIB));
    assert!(keys(&bad).contains(" error limit "), "{}", keys(&bad));
}

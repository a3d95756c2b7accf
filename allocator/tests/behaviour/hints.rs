//! What a failed request advises: each hint where it applies, and not where it does not (D9).

use cachette::{Error, OomHint, OutOfMemory, PoolId, PoolOptions};
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, MIB, Stream, TestAllocator, config, let_pass};

/// The report of a request that must fail.
fn report_on(test: &TestAllocator, bytes: u64, stream: &Stream) -> OutOfMemory {
    match test.allocator.allocate(bytes, stream) {
        Err(Error::OutOfMemory(report)) => *report,
        other => panic!("{other:?}"),
    }
}

fn report(test: &TestAllocator, bytes: u64) -> OutOfMemory {
    report_on(test, bytes, &test.stream())
}

#[test]
fn d9_a_request_that_is_merely_too_large_gets_one_plain_hint() {
    let report = report(&TestAllocator::of(64 * MIB, ""), 100 * MIB);
    assert_eq!(report.hints(), [OomHint::AskForLess]);
    assert_eq!((report.fragmented, report.elsewhere), (0, Some(0)));
    assert!(report.pools.is_empty() && report.holders().is_empty());
}

#[test]
fn d9_the_limit_is_named_where_it_is_in_the_way() {
    let limited = report(&TestAllocator::of(64 * MIB, "memory_limit:30M"), 40 * MIB);
    assert_eq!(limited.hints(), [OomHint::Limit]);
    let beyond = report(&TestAllocator::of(64 * MIB, "memory_limit:900M"), 100 * MIB);
    assert_eq!(beyond.hints(), [OomHint::AskForLess]);
}

/// Three segments of 20 MiB on a full device, with 9 MiB in use at the start of each.
fn in_pieces(test: &TestAllocator, stream: &Stream) -> Vec<Allocation> {
    let blocks: Vec<_> = (0..6).map(|_| test.allocate(9 * MIB, stream)).collect();
    blocks.into_iter().step_by(2).collect()
}

#[test]
fn d9_elastic_segments_are_recommended_where_they_would_help() {
    let (test, [stream]) = TestAllocator::of(60 * MIB, "").with_streams();
    let kept = in_pieces(&test, &stream);
    let report = report_on(&test, 30 * MIB, &stream);
    assert_eq!(report.fragmented, 33 * MIB);
    assert_eq!(report.hints(), [OomHint::Fragmented, OomHint::Elastic]);
    assert!(report.to_string().contains("expandable_segments:True"));
    // More than all pieces together: no arrangement of them would do.
    let beyond = report_on(&test, 34 * MIB, &stream);
    assert_eq!(beyond.hints(), [OomHint::AskForLess]);
    drop(kept);
}

#[test]
fn d9_elastic_segments_are_not_recommended_where_they_are_on() {
    let (test, [stream]) = TestAllocator::elastic_on(HostConfig::default().capacity(60 * MIB), "").with_streams();
    let kept = test.allocate(50 * MIB, &stream);
    let report = report_on(&test, 30 * MIB, &stream);
    assert_eq!(report.elastic, Some(true));
    assert!(!report.hints().contains(&OomHint::Elastic));
    assert!(!report.to_string().contains("expandable"));
    drop(kept);
}

#[test]
fn d9_elastic_segments_are_recommended_only_where_supported() {
    let lacking = HostConfig::default().capacity(60 * MIB).without(cachette::hal::Feature::VirtualMemory);
    let (test, [stream]) = TestAllocator::on(lacking, "").with_streams();
    let kept = in_pieces(&test, &stream);
    let report = report_on(&test, 30 * MIB, &stream);
    assert_eq!(report.elastic, None);
    assert_eq!(report.hints(), [OomHint::Fragmented]);
    drop(kept);
}

#[test]
fn d9_waiting_memory_is_named_where_there_is_some() {
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "never_block:True").with_streams();
    let hold = test.free_in_use(test.allocate(40 * MIB, &stream), &side);
    let waiting = report_on(&test, 40 * MIB, &stream);
    assert_eq!(waiting.pending, 40 * MIB);
    assert_eq!(waiting.hints(), [OomHint::Pending, OomHint::NeverBlock]);
    let_pass(hold, &side);
    let passed = report_on(&test, 65 * MIB, &stream);
    assert_eq!(passed.pending, 0);
    assert!(!passed.hints().contains(&OomHint::Pending));
}

#[test]
fn d9_never_block_is_blamed_only_where_it_prevented_a_wait() {
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "never_block:True").with_streams();
    assert_eq!(report_on(&test, 70 * MIB, &stream).hints(), [OomHint::AskForLess]);
    drop(test.allocate(40 * MIB, &side));
    let unused = report_on(&test, 40 * MIB, &stream);
    assert_eq!(unused.hints(), [OomHint::NeverBlock]);
    // A capture cannot wait either, but no setting is to blame for that.
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "").with_streams();
    drop(test.allocate(40 * MIB, &side));
    let (_pool, capture) = test.capture(&stream);
    let captured = report_on(&test, 40 * MIB, &stream);
    assert!(captured.capturing && captured.never_block);
    assert!(!captured.hints().contains(&OomHint::NeverBlock));
    drop(capture.end().unwrap());
}

#[test]
fn d9_others_are_named_where_they_use_enough() {
    let test = TestAllocator::of(64 * MIB, "");
    let other = test.beside("");
    let foreign = other.allocate(40 * MIB, &other.stream());
    let own = test.allocate(12 * MIB, &test.stream());
    let enough = report(&test, 30 * MIB);
    assert_eq!(enough.elsewhere, Some(40 * MIB));
    assert_eq!(enough.hints(), [OomHint::Elsewhere]);
    assert!(enough.to_string().contains("40.00 MiB are used outside"));
    // Without them there would not be enough either.
    let more = report(&test, 54 * MIB);
    assert_eq!(more.hints(), [OomHint::AskForLess]);
    drop((foreign, own));
    assert_eq!(report(&test, 65 * MIB).elsewhere, Some(40 * MIB));
    other.allocator.empty_cache().unwrap();
    assert_eq!(report(&test, 65 * MIB).elsewhere, Some(0));
}

#[test]
fn d9_memory_past_the_cache_is_the_allocators_own() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "caching:False").with_streams();
    let past = test.allocate(20 * MIB, &stream);
    test.allocator.set_config(&config(""));
    assert_eq!(report(&test, 60 * MIB).elsewhere, Some(0));
    drop(past);
}

#[test]
fn m19_every_pool_is_listed_with_what_it_holds() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    let pool = test.allocator.create_pool();
    let inside = pool.allocate(12 * MIB, &stream).unwrap();
    drop(pool.allocate(14 * MIB, &stream).unwrap());
    let outside = test.allocate(16 * MIB, &stream);
    let report = report_on(&test, 50 * MIB, &stream);
    let figures: Vec<_> =
        report.pools.iter().map(|pool| (pool.id, pool.allocated, pool.reserved, pool.largest_free)).collect();
    assert_eq!(figures, [(PoolId::DEFAULT, 16 * MIB, 16 * MIB, 0), (pool.id(), 12 * MIB, 26 * MIB, 14 * MIB)]);
    let message = report.to_string();
    let wanted = format!("pool {} holds 26.00 MiB, 14.00 MiB of them unused", pool.id());
    assert!(message.contains(&wanted), "{message}");
    drop((inside, outside));
}

#[test]
fn d9_another_pool_is_named_where_it_has_enough_and_keeps_it() {
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "").with_streams();
    let pool = test.allocator.create_pool();
    drop(pool.allocate(40 * MIB, &side).unwrap());
    let kept = report_on(&test, 30 * MIB, &stream);
    assert!(kept.hints().contains(&OomHint::OtherPool));
    let more = report_on(&test, 41 * MIB, &stream);
    assert!(!more.hints().contains(&OomHint::OtherPool));
    pool.set_use_on_oom(true);
    let serves = report_on(&test, 30 * MIB, &stream);
    assert!(serves.pools[0].use_on_oom);
    assert!(!serves.hints().contains(&OomHint::OtherPool));
    pool.empty_cache().unwrap();
    assert!(test.allocator.allocate(30 * MIB, &stream).is_ok());
}

#[test]
fn d9_a_request_inside_a_pool_is_not_told_to_use_that_pool() {
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "never_block:True").with_streams();
    let pool = test.allocator.create_pool_with(PoolOptions::new()).unwrap();
    drop(pool.allocate(40 * MIB, &side).unwrap());
    let Err(Error::OutOfMemory(report)) = pool.allocate(40 * MIB, &stream) else {
        panic!("there is no room");
    };
    assert_eq!(report.pool, pool.id());
    assert!(!report.hints().contains(&OomHint::OtherPool));
}

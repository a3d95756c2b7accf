//! The rules of the sanitizer, one by one.

use cachette::history::Frame;
use cachette_hal::Use;
use cachette_sanitizer::{
    AllocatorWaits, EventId, Finding, FindingKind, Language, Options, Sanitizer, Site, StreamId, Text,
};

const A: StreamId = StreamId(0);
const B: StreamId = StreamId(0xb);
const C: StreamId = StreamId(0xc);

fn of_torch() -> Options {
    let mut options = Options::default();
    options.waits = AllocatorWaits::Promised;
    options.language = Language::Python;
    options
}

fn uses(sanitizer: &mut Sanitizer, stream: StreamId, address: u64, access: Use) {
    sanitizer.uses(stream, address, access, Text::default(), Site(7));
}

/// Frames by site: line 10 of a program for site 1, and so on.
fn lines(site: Site) -> Vec<Frame> {
    vec![Frame { name: "step".into(), file: "train.py".into(), line: site.0 * 10 }]
}

fn found(sanitizer: &Sanitizer) -> Vec<Finding> {
    sanitizer.findings(&lines)
}

/// Memory of `A` that `B` uses, freed; `record` says whether with a record of `B`.
fn used_on_b(sanitizer: &mut Sanitizer, record: bool) {
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    uses(sanitizer, A, 0x1000, Use::Write);
    sanitizer.record(EventId(1), A);
    sanitizer.stream_wait(B, EventId(1));
    let by = sanitizer.text("aten::mul");
    sanitizer.uses(B, 0x1000, Use::Read, by, Site(2));
    sanitizer.describe(0x1000, "float32 (32, 32)");
    if record {
        sanitizer.record_stream(0x1000, B);
    }
    sanitizer.free(0x1000, Site(3));
}

fn after_b(options: Options, record: bool) -> Sanitizer {
    let mut sanitizer = Sanitizer::new(options);
    used_on_b(&mut sanitizer, record);
    sanitizer
}

#[test]
fn a_request_is_checked_when_the_allocator_keeps_its_promises() {
    for record in [false, true] {
        let mut sanitizer = after_b(of_torch(), record);
        sanitizer.allocate(A, 0x1000, 4096, Site(4));
        assert_eq!(sanitizer.count(), usize::from(!record));
    }
}

#[test]
fn a_record_covers_only_the_work_that_was_queued_at_the_free() {
    let mut sanitizer = after_b(of_torch(), true);
    uses(&mut sanitizer, B, 0x1000, Use::Read);
    assert_eq!(found(&sanitizer)[0].kind, FindingKind::UsedAfterFree);
}

#[test]
fn a_request_of_another_stream_waits_for_the_previous_owner() {
    let mut sanitizer = Sanitizer::new(of_torch());
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    uses(&mut sanitizer, A, 0x1000, Use::Write);
    sanitizer.free(0x1000, Site(3));
    sanitizer.allocate(B, 0x1000, 4096, Site(4));
    uses(&mut sanitizer, B, 0x1000, Use::Write);
    assert_eq!(found(&sanitizer), []);
}

#[test]
fn a_finding_names_every_place_and_what_is_missing() {
    let mut sanitizer = after_b(of_torch(), false);
    sanitizer.allocate(A, 0x1000, 2048, Site(4));
    let text = found(&sanitizer)[0].to_string();
    let expected = "\
cachette sanitizer: memory was reused while another stream could still use it
  memory: 4.00 KiB, float32 (32, 32), at 0x1000
  1. allocated on stream A (default)
       train.py:10 in step
  2. read on stream B (0xb) by aten::mul
       train.py:20 in step
  3. freed
       train.py:30 in step
  4. given to a request of 2.00 KiB on stream A (default)
       train.py:40 in step
  missing: nothing orders B before A. Call `x.record_stream(B)` before train.py:30, or `A.wait_stream(B)` before \
                    train.py:40.";
    assert_eq!(text, expected);
}

#[test]
fn a_use_that_does_not_wait_for_the_owner_needs_a_wait() {
    let mut sanitizer = Sanitizer::new(of_torch());
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    uses(&mut sanitizer, A, 0x1000, Use::Write);
    sanitizer.free(0x1000, Site(3));
    sanitizer.allocate(A, 0x1000, 4096, Site(4));
    sanitizer.uses(StreamId(1 << 56), 0x1000, Use::Write, Text::default(), Site(5));
    let finding = &found(&sanitizer)[0];
    assert_eq!(finding.steps[4].what, "then written on stream B (default of device 1)");
    assert_eq!(finding.missing, "nothing orders A before B. Call `B.wait_stream(A)` before train.py:50.");
}

#[test]
fn a_finding_is_json() {
    let mut sanitizer = after_b(of_torch(), false);
    sanitizer.allocate(A, 0x1000, 2048, Site(4));
    let json = serde_json::to_value(&found(&sanitizer)[0]).unwrap();
    assert_eq!(json["kind"], "reused_too_early");
    assert_eq!(json["steps"][1]["lines"][0]["line"], 20);
    assert_eq!(json["description"], "float32 (32, 32)");
}

#[test]
fn equal_findings_are_one_with_a_count() {
    let mut sanitizer = Sanitizer::new(of_torch());
    for _ in 0..5 {
        used_on_b(&mut sanitizer, false);
        sanitizer.allocate(A, 0x1000, 4096, Site(4));
        // The request was counted; its first use is the same finding.
        uses(&mut sanitizer, A, 0x1000, Use::Write);
        sanitizer.free(0x1000, Site(5));
        sanitizer.synchronize_device();
    }
    let findings = found(&sanitizer);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].count, 5);
}

#[test]
fn two_reads_do_not_conflict() {
    let mut sanitizer = after_b(Options::default(), false);
    sanitizer.allocate(A, 0x1000, 4096, Site(4));
    uses(&mut sanitizer, A, 0x1000, Use::Read);
    assert_eq!(sanitizer.count(), 0);
    uses(&mut sanitizer, A, 0x1000, Use::Write);
    assert_eq!(sanitizer.count(), 1);
}

#[test]
fn reads_before_writes_are_found_if_asked_for() {
    let mut options = Options::default();
    options.reads_before_writes = true;
    let mut sanitizer = Sanitizer::new(options);
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    uses(&mut sanitizer, A, 0x1000, Use::Read);
    assert_eq!(found(&sanitizer)[0].kind, FindingKind::ReadBeforeWritten);
    sanitizer.allocate(A, 0x4000, 4096, Site(2));
    uses(&mut sanitizer, A, 0x4000, Use::Write);
    uses(&mut sanitizer, A, 0x4000, Use::Read);
    assert_eq!(sanitizer.count(), 1);
    // The write is not ordered before a read of a stream that does not wait.
    uses(&mut sanitizer, B, 0x4000, Use::Read);
    assert_eq!(sanitizer.count(), 2);
}

#[test]
fn a_write_that_the_host_has_waited_for_precedes_every_read() {
    for waits in [false, true] {
        let mut options = Options::default();
        options.reads_before_writes = true;
        let mut sanitizer = Sanitizer::new(options);
        sanitizer.allocate(A, 0x1000, 4096, Site(1));
        uses(&mut sanitizer, B, 0x1000, Use::Write);
        if waits {
            sanitizer.synchronize(B);
        }
        uses(&mut sanitizer, C, 0x1000, Use::Read);
        assert_eq!(sanitizer.count(), usize::from(!waits), "waits: {waits}");
    }
}

#[test]
fn a_free_reported_after_the_next_request_ends_the_right_life() {
    let mut sanitizer = Sanitizer::new(Options::default());
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    uses(&mut sanitizer, B, 0x1000, Use::Read);
    // A second thread gets the block before the first has reported its free.
    sanitizer.allocate(A, 0x1000, 4096, Site(4));
    sanitizer.free(0x1000, Site(3));
    uses(&mut sanitizer, A, 0x1000, Use::Write);
    let kinds: Vec<FindingKind> = found(&sanitizer).iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::ReusedTooEarly]);
}

#[test]
fn each_free_that_is_reported_late_ends_no_later_life() {
    let mut sanitizer = Sanitizer::new(Options::default());
    for _ in 0..4 {
        sanitizer.allocate(A, 0x1000, 4096, Site(1));
    }
    for late in 0..3 {
        sanitizer.free(0x1000, Site(3));
        assert!(sanitizer.is_live(0x1000), "late free {late}");
    }
    sanitizer.free(0x1000, Site(3));
    assert!(!sanitizer.is_live(0x1000));
}

#[test]
fn memory_that_waits_for_its_uses_is_reused_without_a_finding() {
    for forgotten in [false, true] {
        let mut sanitizer = Sanitizer::new(Options::default());
        sanitizer.allocate(A, 0x1000, 4096, Site(1));
        uses(&mut sanitizer, B, 0x1000, Use::Write);
        if forgotten {
            sanitizer.forget(0x1000);
        } else {
            sanitizer.free(0x1000, Site(3));
        }
        assert!(!sanitizer.is_live(0x1000));
        sanitizer.allocate(A, 0x1000, 4096, Site(4));
        uses(&mut sanitizer, A, 0x1000, Use::Write);
        assert_eq!(sanitizer.count(), usize::from(!forgotten), "forgotten: {forgotten}");
    }
}

#[test]
fn findings_past_the_most_are_counted() {
    let mut sanitizer = Sanitizer::new(of_torch());
    for place in 0..1003 {
        sanitizer.allocate(A, 0x1000, 4096, Site(place));
        sanitizer.free(0x1000, Site(3));
        uses(&mut sanitizer, A, 0x1000, Use::Read);
    }
    assert_eq!((sanitizer.count(), sanitizer.unfollowed().findings), (1000, 3));
}

#[test]
fn streams_and_memory_made_outside_are_counted_and_not_followed() {
    let mut sanitizer = Sanitizer::new(of_torch());
    sanitizer.ignore_stream(C);
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    uses(&mut sanitizer, C, 0x1000, Use::Write);
    sanitizer.free(0x1000, Site(3));
    sanitizer.allocate(A, 0x1000, 4096, Site(4));
    uses(&mut sanitizer, A, 0x9000, Use::Read);
    assert_eq!(sanitizer.count(), 0);
    let unfollowed = sanitizer.unfollowed();
    assert_eq!((unfollowed.foreign_streams, unfollowed.unknown_memory), (1, 1));
}

#[test]
fn nonsense_does_not_panic() {
    let mut sanitizer = Sanitizer::new(of_torch());
    sanitizer.free(0x1000, Site(1));
    sanitizer.stream_wait(A, EventId(9));
    sanitizer.host_wait(EventId(9));
    sanitizer.destroy_event(EventId(9));
    sanitizer.record_stream(0x1000, B);
    sanitizer.host_uses(0x1000, Use::Write, Site(1));
    sanitizer.unmap(0, u64::MAX, Some(C), Site(1));
    sanitizer.map(u64::MAX, u64::MAX);
    sanitizer.allocate(A, u64::MAX, u64::MAX, Site(1));
    sanitizer.allocate(A, u64::MAX - 1, 0, Site(1));
    uses(&mut sanitizer, A, u64::MAX, Use::Write);
    let graph = sanitizer.end_capture(A);
    sanitizer.launch(&graph, A);
    sanitizer.begin_capture(A);
    sanitizer.begin_capture(A);
    uses(&mut sanitizer, A, 0x1000, Use::Write);
    assert_eq!(sanitizer.unfollowed().captured, 1);
}

#[test]
fn a_stream_joins_a_capture_by_an_event() {
    let mut sanitizer = Sanitizer::new(Options::default());
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    sanitizer.begin_capture(B);
    sanitizer.record(EventId(1), B);
    sanitizer.stream_wait(C, EventId(1));
    uses(&mut sanitizer, C, 0x1000, Use::Write);
    let graph = sanitizer.end_capture(B);
    sanitizer.free(0x1000, Site(3));
    sanitizer.launch(&graph, A);
    assert_eq!(found(&sanitizer)[0].kind, FindingKind::UsedAfterFree);
}

#[test]
fn a_graph_that_reads_and_writes_does_both_at_its_launch() {
    let mut sanitizer = after_b(Options::default(), false);
    sanitizer.allocate(A, 0x1000, 4096, Site(4));
    sanitizer.begin_capture(A);
    uses(&mut sanitizer, A, 0x1000, Use::Read);
    uses(&mut sanitizer, A, 0x1000, Use::Write);
    let graph = sanitizer.end_capture(A);
    assert_eq!(sanitizer.count(), 0, "nothing has run");
    sanitizer.launch(&graph, A);
    // Only the write conflicts with the read on B.
    assert_eq!(sanitizer.count(), 1);
}

#[test]
fn a_wait_for_another_capture_leaves_a_stream_in_its_own() {
    let mut sanitizer = Sanitizer::new(Options::default());
    sanitizer.allocate(A, 0x1000, 4096, Site(1));
    sanitizer.begin_capture(B);
    sanitizer.begin_capture(C);
    sanitizer.record(EventId(1), C);
    sanitizer.stream_wait(B, EventId(1));
    uses(&mut sanitizer, B, 0x1000, Use::Write);
    sanitizer.end_capture(C);
    let graph = sanitizer.end_capture(B);
    sanitizer.free(0x1000, Site(3));
    sanitizer.launch(&graph, A);
    assert_eq!(found(&sanitizer)[0].kind, FindingKind::UsedAfterFree);
}

#[test]
fn a_wait_inside_a_capture_orders_nothing_outside_it() {
    for captured in [false, true] {
        let mut sanitizer = after_b(of_torch(), false);
        sanitizer.record(EventId(2), B);
        if captured {
            sanitizer.begin_capture(A);
        }
        sanitizer.stream_wait(A, EventId(2));
        sanitizer.end_capture(A);
        sanitizer.allocate(A, 0x1000, 4096, Site(4));
        assert_eq!(sanitizer.count(), usize::from(captured), "captured: {captured}");
    }
}

#[test]
fn what_the_host_has_waited_for_precedes_all_later_work() {
    for waits in [false, true] {
        let mut sanitizer = after_b(of_torch(), false);
        if waits {
            sanitizer.synchronize(B);
        }
        sanitizer.allocate(A, 0x1000, 4096, Site(4));
        assert_eq!(sanitizer.count(), usize::from(!waits), "waits: {waits}");
    }
}

#[test]
fn a_new_event_with_the_number_of_a_destroyed_one_orders_nothing() {
    let mut sanitizer = after_b(of_torch(), false);
    sanitizer.record(EventId(2), B);
    sanitizer.destroy_event(EventId(2));
    sanitizer.stream_wait(A, EventId(2));
    sanitizer.allocate(A, 0x1000, 4096, Site(4));
    assert_eq!(sanitizer.count(), 1);
}

#[test]
fn an_event_of_a_capture_that_has_ended_puts_no_stream_into_it() {
    let mut sanitizer = Sanitizer::new(of_torch());
    sanitizer.begin_capture(C);
    sanitizer.record(EventId(2), C);
    sanitizer.end_capture(C);
    sanitizer.stream_wait(B, EventId(2));
    used_on_b(&mut sanitizer, false);
    sanitizer.allocate(A, 0x1000, 4096, Site(4));
    assert_eq!(sanitizer.count(), 1, "the use on B is followed");
}

//! Annotations by the program: on the events of its threads, and in a separate list.

use std::sync::{Arc, Mutex};

use cachette::history::{self, Stage};
use cachette::snapshot::Event;
use cachette::{Error, Snapshot, TraceAction};

use crate::fixture::TestAllocator;
use crate::history::events_only;

/// The annotations of a snapshot's events: metadata and context.
fn words(snapshot: &Snapshot) -> Vec<(&str, &str)> {
    let texts = &snapshot.texts;
    let of = |event: &Event| (texts.get(event.metadata), texts.get(event.context));
    let events = snapshot.traces.iter().flat_map(|trace| &trace.events);
    let mut words: Vec<_> = events.map(of).collect();
    words.dedup();
    words
}

#[test]
fn h13_what_a_thread_says_is_on_every_event_until_it_is_changed() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let alloc = || drop(test.allocate(700, &stream));
    alloc();
    history::set_metadata("forward");
    alloc();
    {
        let _outer = history::enter_context("region 0");
        alloc();
        let inner = history::enter_context("region 1");
        alloc();
        drop(inner);
        history::set_metadata("backward");
        alloc();
    }
    assert_eq!(history::metadata(), "backward");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(history::metadata(), "", "another thread has said nothing");
            alloc();
        });
    });
    history::set_metadata("");
    assert_eq!(
        words(&test.allocator.snapshot()),
        [
            ("", ""),
            ("forward", ""),
            ("forward", "region 0"),
            ("forward", "region 1"),
            ("backward", "region 0"),
            ("", "")
        ]
    );
}

#[test]
fn h13_memory_in_use_is_annotated_by_an_event() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    test.allocator.track(move |event| sink.lock().unwrap().push((event.action, event.address, event.bytes)));
    let memory = test.allocate(700, &stream);
    let address = memory.address();
    let annotated = (TraceAction::Annotate, address, 700);
    test.allocator.annotate(address, "told to trackers alone").unwrap();
    assert_eq!(told.lock().unwrap().pop(), Some(annotated));
    test.allocator.record_history(events_only());
    history::set_metadata("forward");
    test.allocator.annotate(address, "saved for backward").unwrap();
    assert_eq!(history::metadata(), "forward");
    drop(memory);
    let snapshot = test.allocator.snapshot();
    let events = &snapshot.traces[0].events;
    let first = (events[0].action, events[0].address, events[0].bytes);
    assert_eq!(first, annotated);
    assert_eq!(words(&snapshot), [("saved for backward", ""), ("forward", "")]);
    let refused = test.allocator.annotate(address, "freed").unwrap_err();
    assert!(matches!(refused, Error::InvalidPointer { .. }), "{refused}");
    history::set_metadata("");
}

#[test]
fn h13_nobody_looks_for_memory_that_no_history_has() {
    let test = TestAllocator::new();
    assert_eq!(test.allocator.annotate(0x1234, "unknown"), Ok(()));
}

#[test]
fn h12_annotations_are_kept_while_a_history_is_recorded() {
    let test = TestAllocator::new();
    let device = test.allocator.device_info().ordinal;
    test.allocator.record_history(events_only());
    history::annotate("step of h12", Stage::Start, device);
    history::annotate("step of h12", Stage::End, device);
    let snapshot = test.allocator.snapshot();
    let mut annotations = snapshot.annotations;
    // Other tests of this process may say something too.
    annotations.retain(|annotation| annotation.name == "step of h12");
    let stages: Vec<_> = annotations.iter().map(|a| (a.stage, a.device)).collect();
    assert_eq!(stages, [(Stage::Start, 0), (Stage::End, 0)]);
    assert!(annotations[0].time_us <= annotations[1].time_us);
}

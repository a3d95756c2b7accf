//! A history that many threads write while others read it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use cachette::history::HistoryOptions;
use cachette::snapshot::{Event, TraceAction};

use crate::fixture::TestAllocator;
use crate::fixture::threads::Stop;

const THREADS: u64 = 4;

/// Of each address: where its events stand in the order of allocation, request and end.
#[derive(Default)]
struct Lives {
    /// What each address was last seen doing, and with how many bytes.
    last: HashMap<u64, (TraceAction, u64)>,
}

impl Lives {
    /// Whether an event can follow what the address did before.
    fn follows(&mut self, event: &Event) -> bool {
        let before = self.last.insert(event.address, (event.action, event.bytes));
        let Some((action, bytes)) = before else {
            return true;
        };
        match event.action {
            TraceAction::Alloc => matches!(action, TraceAction::FreeCompleted | TraceAction::SegmentAlloc),
            TraceAction::FreeRequested => (action, bytes) == (TraceAction::Alloc, event.bytes),
            TraceAction::FreeCompleted => (action, bytes) == (TraceAction::FreeRequested, event.bytes),
            _ => true,
        }
    }
}

/// Every thread asks for sizes that are its own, so an event whose parts do not belong together shows.
fn is_whole(event: &Event, streams: &[u64]) -> bool {
    match event.action {
        TraceAction::Alloc | TraceAction::FreeRequested | TraceAction::FreeCompleted => {
            let thread = usize::try_from(event.bytes % THREADS).expect("it fits");
            streams[thread] == event.stream
        }
        _ => true,
    }
}

#[test]
fn h3_no_event_is_torn_while_threads_write_and_another_reads() {
    for most in [50, 3000, 200_000] {
        let test = TestAllocator::phantom(1 << 40, "");
        let streams: Vec<_> = (0..THREADS).map(|_| test.stream()).collect();
        let raw: Vec<u64> = streams.iter().map(|s| s.handle().raw() as u64).collect();
        test.allocator.record_history(HistoryOptions::new().stacks(false).max_entries(most));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let stop = Stop(&done);
            let writers: Vec<_> = (0..THREADS)
                .map(|me| {
                    let (test, stream) = (&test, &streams[usize::try_from(me).unwrap()]);
                    scope.spawn(move || {
                        for n in 1..8000 {
                            let bytes = (n % 1000 + 1) * THREADS + me;
                            drop(test.allocate(bytes, stream));
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut looks = 0;
                while !done.load(Relaxed) || looks == 0 {
                    let snapshot = test.allocator.snapshot();
                    let events = &snapshot.traces[0].events;
                    assert!(events.len() as u64 <= most);
                    assert!(events.iter().all(|event| is_whole(event, &raw)));
                    assert!(events.is_sorted_by_key(|event| event.time_us));
                    looks += 1;
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            drop(stop);
            reader.join().unwrap();
        });
        let snapshot = test.allocator.snapshot();
        let events = &snapshot.traces[0].events;
        assert_eq!(events.len() as u64, most.min(events.len() as u64));
        let mut lives = Lives::default();
        for event in events {
            assert!(is_whole(event, &raw), "{event:?}");
            assert!(lives.follows(event), "{event:?} comes out of order");
        }
        let wanted = most.min(THREADS * 7999 * 3);
        assert!(events.len() as u64 >= wanted, "{} of {wanted}", events.len());
    }
}

#[test]
fn h3_threads_that_share_a_stream_record_in_order() {
    let (test, [stream]) = TestAllocator::phantom(1 << 40, "").with_streams();
    test.allocator.record_history(HistoryOptions::new().stacks(false).max_entries(1 << 20));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 1..3000 {
                    drop(test.allocate(n, &stream));
                }
            });
        }
    });
    let snapshot = test.allocator.snapshot();
    let events = &snapshot.traces[0].events;
    let blocks =
        events.iter().filter(|event| !matches!(event.action, TraceAction::SegmentAlloc | TraceAction::Snapshot));
    assert_eq!(blocks.clone().count() as u64, THREADS * 2999 * 3);
    let mut lives = Lives::default();
    for event in events {
        assert!(lives.follows(event), "{event:?} comes out of order");
    }
}

#[test]
fn h1_a_history_may_be_switched_while_threads_allocate() {
    let test = TestAllocator::phantom(1 << 40, "");
    let streams = test.streams::<2>();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = Stop(&done);
        let writers: Vec<_> = streams
            .iter()
            .map(|stream| {
                let (test, done) = (&test, &done);
                scope.spawn(move || {
                    while !done.load(Relaxed) {
                        drop(test.allocate(700, stream));
                        let raw = test.allocate_raw(900, stream);
                        test.allocator.free_raw(raw).unwrap();
                    }
                })
            })
            .collect();
        for round in 0..40 {
            let options = HistoryOptions::new().max_entries(100 + round);
            test.allocator.record_history(options.clear(round % 3 == 0));
            assert!(test.allocator.snapshot().traces.len() == 1);
            if round % 4 == 3 {
                test.allocator.stop_history();
            }
        }
        drop(stop);
        for writer in writers {
            writer.join().unwrap();
        }
    });
    test.assert_sound();
}

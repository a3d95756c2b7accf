//! Queries of a capture's status that the driver fails to answer.

use cachette::Error;
use cachette::hal::{Call, ErrorKind};
use cachette::sleep::Contents;

use crate::fixture::{Allocation, MIB, Pool, TestAllocator, begin_capture};

#[test]
fn a_request_whose_capture_cannot_be_told_gets_no_other_memory() {
    for text in ["", "expandable_segments:True"] {
        let (test, [stream]) = TestAllocator::with(text).with_streams();
        let (pool, capture) = test.capture(&stream);
        test.device.fail_next(Call::CaptureStatus, 1, ErrorKind::Other);
        let asked = test.allocator.allocate(MIB, &stream);
        assert!(matches!(asked, Err(Error::Device(_))), "{asked:?}");
        let memory = test.allocate(MIB, &stream);
        assert_eq!(pool.stats().allocations, 1, "{text}");
        drop((memory, capture));
    }
}

type Step = fn(&TestAllocator, &Pool, Allocation);

/// Events that a step records while a stream is captured and the `nth` question about a capture fails, and whether it
/// asks so often.
fn recorded(step: Step, nth: u64) -> (u64, bool) {
    let (test, [stream, side]) = TestAllocator::elastic("").with_streams();
    let pool = test.allocator.create_pool();
    let graphs = test.allocator.create_capture_pool();
    let memory = pool.allocate(4 * MIB, &stream).expect("there is room");
    memory.record_stream(&side);
    // The stream that is captured has memory that could go back.
    drop(test.allocate(4 * MIB, &side));
    let capture = begin_capture(&graphs, &side);
    let calls = || [Call::CaptureStatus, Call::Record].map(|call| test.device.calls(call));
    let before = calls();
    test.device.fail_next(Call::CaptureStatus, nth, ErrorKind::Other);
    step(&test, &pool, memory);
    let [asked, events] = std::array::from_fn(|at| calls()[at] - before[at]);
    test.device.clear_failures();
    assert!(test.is_captured(&side));
    capture.end().expect("it is whole");
    test.assert_returns_everything_after((pool, graphs, stream, side));
    (events, asked >= nth)
}

#[test]
fn a_question_about_a_capture_that_fails_marks_nothing_in_it() {
    let steps: [(&str, Step); 3] = [
        ("free", |_, _, memory| drop(memory)),
        ("empty", |test, _, _memory| {
            let _ = test.allocator.empty_cache();
        }),
        ("sleep", |_, pool, _memory| {
            let _ = pool.sleep(Contents::Keep);
            pool.wake().expect("there is room");
        }),
    ];
    for (name, step) in steps {
        let (usual, _) = recorded(step, u64::MAX);
        let failing = (1..).map(|nth| (nth, recorded(step, nth)));
        let failing: Vec<_> = failing.take_while(|(_, (_, reached))| *reached).collect();
        assert!(!failing.is_empty(), "{name} asks");
        for (nth, (events, _)) in failing {
            assert!(events <= usual, "{name}: {events} after question {nth} failed");
        }
    }
}

//! Elastic segments during a capture: memory is made, no chunk moves, and the capture stays valid.

use cachette::hal::{Call, CaptureMode, Device};

use crate::fixture::{MIB, TestAllocator};

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

#[test]
fn memory_is_made_and_no_chunk_moves_during_a_capture() {
    for mode in MODES {
        let (test, [stream]) = TestAllocator::elastic("").with_streams();
        let other = test.stream();
        let (spare, kept) = (test.allocate(8 * MIB, &stream), test.allocate(2 * MIB, &stream));
        drop(test.allocate(4 * MIB, &other));
        drop(spare);
        test.begin_unannounced(&stream, mode);
        let calls = [Call::Unmap, Call::Record, Call::Poll, Call::Wait];
        let before = calls.map(|call| test.device.calls(call));
        let memory = test.allocate(16 * MIB, &stream);
        test.fill(&memory, 4, &stream);
        assert_eq!(calls.map(|call| test.device.calls(call)), before);
        assert!(test.is_captured(&stream), "{mode:?}");
        assert_eq!(test.device.physical_bytes(), 30 * MIB);
        let capture = test.device.capture().expect("the host device captures");
        // SAFETY: 1. the stream lives.
        let graph = unsafe { capture.end_capture(stream.handle()) }.expect("the capture is whole");
        test.fill(&memory, 1, &stream);
        // SAFETY: 1. the graph and the stream live. 3. what was captured is still allocated.
        unsafe { capture.launch(&graph, stream.handle()) }.expect("the graph runs");
        assert_eq!(test.content(&memory, &stream), Some(4));
        test.assert_elastic_sound();
        // SAFETY: 1. the graph is this device's, and goes here.
        unsafe { capture.destroy_graph(graph) }.expect("the graph goes");
        drop((memory, kept));
    }
}

#[test]
fn emptying_the_cache_leaves_a_captured_stream_alone() {
    for mode in MODES {
        let (test, [stream, other]) = TestAllocator::elastic("").with_streams();
        drop(test.allocate(8 * MIB, &stream));
        let kept = test.allocate(2 * MIB, &other);
        drop(test.allocate(4 * MIB, &other));
        test.device.run_until_idle();
        let held = test.device.physical_bytes();
        test.begin_unannounced(&stream, mode);
        let emptied = test.allocator.empty_cache();
        assert!(test.is_captured(&stream), "{mode:?}: {emptied:?}");
        test.end_unannounced(&stream);
        test.allocator.check().expect("every invariant holds");
        test.allocator.empty_cache().expect("nothing fails");
        assert!(test.device.physical_bytes() < held);
        assert_eq!(test.device.physical_bytes(), 2 * MIB);
        test.assert_elastic_sound();
        drop(kept);
    }
}

#[test]
fn other_streams_neither_take_from_a_captured_one_nor_break_it() {
    for mode in MODES {
        let (test, [stream, other]) = TestAllocator::elastic("").with_streams();
        drop(test.allocate(8 * MIB, &stream));
        test.begin_unannounced(&stream, mode);
        let apart = test.allocate(6 * MIB, &other);
        assert!(test.is_captured(&stream), "{mode:?}");
        assert_eq!(test.device.physical_bytes(), 14 * MIB);
        test.end_unannounced(&stream);
        let after = test.allocate(8 * MIB, &other);
        assert_eq!(test.device.physical_bytes(), 14 * MIB);
        test.assert_elastic_sound();
        drop((apart, after));
    }
}

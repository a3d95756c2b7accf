//! A stream that is being captured: memory comes without any chunk moving, and the capture stays whole.

use cachette::hal::{Call, CaptureMode, CaptureStatus, Device, Graph};

use crate::bed::{Bed, Lane, MIB};

/// Begins to capture a stream.
fn begin(bed: &Bed, stream: &Lane, mode: CaptureMode) {
    let capture = bed.device.capture().expect("the host device captures");
    // SAFETY: 1. the stream lives.
    unsafe { capture.begin_capture(stream.handle(), mode) }.expect("it begins");
}

/// Ends the capture of a stream, which must be whole.
fn end(bed: &Bed, stream: &Lane) -> Graph {
    let capture = bed.device.capture().expect("the host device captures");
    // SAFETY: 1. the stream lives.
    unsafe { capture.end_capture(stream.handle()) }.expect("the capture is whole")
}

fn destroy(bed: &Bed, graph: Graph) {
    let capture = bed.device.capture().expect("the host device captures");
    // SAFETY: 1. the graph is this device's, and goes here.
    unsafe { capture.destroy_graph(graph) }.expect("the graph goes");
}

fn is_whole(bed: &Bed, stream: &Lane) -> bool {
    let capture = bed.device.capture().expect("the host device captures");
    // SAFETY: 1. the stream lives.
    let status = unsafe { capture.capture_status(stream.handle()) };
    matches!(status, Ok(CaptureStatus::Active(_)))
}

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

#[test]
fn memory_is_made_and_no_chunk_moves_while_the_stream_is_captured() {
    for mode in MODES {
        let bed = Bed::elastic("");
        let stream = bed.stream();
        let other = bed.stream();
        let (spare, kept) = (bed.allocate(8 * MIB, &stream), bed.allocate(2 * MIB, &stream));
        drop(bed.allocate(4 * MIB, &other));
        drop(spare);
        begin(&bed, &stream, mode);
        let calls = [Call::Unmap, Call::Record, Call::Poll, Call::Wait];
        let before = calls.map(|call| bed.device.calls(call));
        let memory = bed.allocate(16 * MIB, &stream);
        bed.fill(&memory, 4, &stream);
        assert_eq!(calls.map(|call| bed.device.calls(call)), before);
        assert!(is_whole(&bed, &stream), "{mode:?}");
        assert_eq!(bed.device.physical_bytes(), 30 * MIB);
        let graph = end(&bed, &stream);
        bed.fill(&memory, 1, &stream);
        let capture = bed.device.capture().expect("the host device captures");
        // SAFETY: 1. the graph and the stream live. 3. what was captured is still allocated.
        unsafe { capture.launch(&graph, stream.handle()) }.expect("the graph runs");
        assert_eq!(bed.content(&memory, &stream), Some(4));
        bed.assert_elastic_sound();
        destroy(&bed, graph);
        drop((memory, kept));
    }
}

#[test]
fn emptying_the_cache_leaves_a_captured_stream_alone() {
    for mode in MODES {
        let bed = Bed::elastic("");
        let (stream, other) = (bed.stream(), bed.stream());
        drop(bed.allocate(8 * MIB, &stream));
        let kept = bed.allocate(2 * MIB, &other);
        drop(bed.allocate(4 * MIB, &other));
        bed.device.run_until_idle();
        let held = bed.device.physical_bytes();
        begin(&bed, &stream, mode);
        let emptied = bed.allocator.empty_cache();
        assert!(is_whole(&bed, &stream), "{mode:?}: {emptied:?}");
        destroy(&bed, end(&bed, &stream));
        bed.allocator.check().expect("every invariant holds");
        bed.allocator.empty_cache().expect("nothing fails");
        assert!(bed.device.physical_bytes() < held);
        assert_eq!(bed.device.physical_bytes(), 2 * MIB);
        bed.assert_elastic_sound();
        drop(kept);
    }
}

#[test]
fn other_streams_neither_take_from_a_captured_one_nor_break_it() {
    for mode in MODES {
        let bed = Bed::elastic("");
        let (stream, other) = (bed.stream(), bed.stream());
        drop(bed.allocate(8 * MIB, &stream));
        begin(&bed, &stream, mode);
        let apart = bed.allocate(6 * MIB, &other);
        assert!(is_whole(&bed, &stream), "{mode:?}");
        assert_eq!(bed.device.physical_bytes(), 14 * MIB);
        destroy(&bed, end(&bed, &stream));
        let after = bed.allocate(8 * MIB, &other);
        assert_eq!(bed.device.physical_bytes(), 14 * MIB);
        bed.assert_elastic_sound();
        drop((apart, after));
    }
}

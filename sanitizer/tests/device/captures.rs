//! Bugs with captured graphs.

use cachette::Allocation;
use cachette_hal::{CaptureMode, Graph};

use crate::bed::Bed;
use crate::planted;

/// Memory that `a` has written, a graph captured on `b` that copies it, and where it copies to.
fn copying(bed: &Bed) -> (Allocation, Graph, Allocation) {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.sync(&bed.a);
    let capture = bed.device.capture().unwrap();
    // SAFETY: 1. the stream lives.
    unsafe { capture.begin_capture(bed.b.handle(), CaptureMode::Relaxed) }.unwrap();
    bed.copy(&bed.b, &out, &x);
    // SAFETY: 1. the stream lives.
    let graph = unsafe { capture.end_capture(bed.b.handle()) }.unwrap();
    (x, graph, out)
}

fn launch(bed: &Bed, graph: &Graph) {
    // SAFETY: 1. both live. 3. the memory is still mapped.
    bed.note(unsafe { bed.device.capture().unwrap().launch(graph, bed.b.handle()) });
}

planted!(a_graph_launched_after_its_input_was_freed: UsedAfterFree, |bed, fixed| {
    let (x, graph, out) = copying(bed);
    let kept = Some(x).filter(|_| fixed);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.wait_stream(&bed.b, &bed.a);
    launch(bed, &graph);
    let wrong = bed.is_wrong(&out, 1);
    drop(kept);
    wrong
});

planted!(a_graph_that_still_runs_when_its_input_is_freed: ReusedTooEarly, |bed, fixed| {
    let (x, graph, out) = copying(bed);
    launch(bed, &graph);
    if fixed {
        x.record_stream(&bed.b);
    }
    drop(x);
    bed.fill(&bed.a, &bed.allocate(&bed.a), 2);
    bed.is_wrong(&out, 1)
});

//! Bugs with captured graphs.

use cachette_hal::CaptureMode;

use crate::planted;

planted!(a_graph_launched_after_its_input_was_freed: UsedAfterFree, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.sync(&bed.a);
    let capture = bed.device.capture().unwrap();
    // SAFETY: 1. the stream lives.
    unsafe { capture.begin_capture(bed.b.handle(), CaptureMode::Relaxed) }.unwrap();
    bed.copy(&bed.b, &out, &x);
    // SAFETY: 1. the stream lives.
    let graph = unsafe { capture.end_capture(bed.b.handle()) }.unwrap();
    let kept = Some(x).filter(|_| fixed);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.wait_stream(&bed.b, &bed.a);
    // SAFETY: 1. both live. 3. the memory is still mapped.
    bed.note(unsafe { capture.launch(&graph, bed.b.handle()) });
    let wrong = bed.is_wrong(&out, 1);
    drop(kept);
    wrong
});

planted!(a_graph_that_still_runs_when_its_input_is_freed: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.sync(&bed.a);
    let capture = bed.device.capture().unwrap();
    // SAFETY: 1. the stream lives.
    unsafe { capture.begin_capture(bed.b.handle(), CaptureMode::Relaxed) }.unwrap();
    bed.copy(&bed.b, &out, &x);
    // SAFETY: 1. the stream lives.
    let graph = unsafe { capture.end_capture(bed.b.handle()) }.unwrap();
    // SAFETY: 1. both live. 3. the memory is still mapped.
    bed.note(unsafe { capture.launch(&graph, bed.b.handle()) });
    if fixed {
        x.record_stream(&bed.b);
    }
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

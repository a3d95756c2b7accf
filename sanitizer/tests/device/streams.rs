//! Bugs in the order of streams and frees.

use std::thread;

use cachette::Allocation;

use crate::bed::Bed;
use crate::planted;

/// `a` writes memory, `b` reads it once `a` has, and the next owner on `a` writes it too. The program ends with the memory
/// what it likes after the read. Returns whether the read was wrong.
fn reused(bed: &Bed, after: impl FnOnce(Allocation)) -> bool {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    after(x);
    bed.fill(&bed.a, &bed.allocate(&bed.a), 2);
    bed.is_wrong(&out, 1)
}

/// Does what a correct program does at this point, or what a wrong one does.
fn only_if(wanted: bool, act: impl FnOnce()) {
    if wanted {
        act();
    }
}

planted!(a_missing_record_stream: ReusedTooEarly, |bed, fixed| {
    reused(bed, |x| only_if(fixed, || x.record_stream(&bed.b)))
});

planted!(a_drop_on_another_thread: ReusedTooEarly, |bed, fixed| {
    reused(bed, |x| {
        only_if(fixed, || x.record_stream(&bed.b));
        thread::scope(|scope| scope.spawn(|| drop(x)).join()).unwrap();
    })
});

planted!(a_release_after_the_wrong_stream: ReusedTooEarly, |bed, fixed| {
    reused(bed, |x| x.release_after(&[if fixed { &bed.b } else { &bed.c }]).unwrap())
});

planted!(an_event_recorded_again_elsewhere_before_the_wait: ReusedTooEarly, |bed, fixed| {
    let event = bed.event();
    reused(bed, |_x| {
        bed.record(&event, &bed.b);
        only_if(!fixed, || bed.record(&event, &bed.c));
        bed.wait(&bed.a, &event);
    })
});

planted!(a_synchronization_of_another_stream: ReusedTooEarly, |bed, fixed| {
    reused(bed, |_x| bed.sync(if fixed { &bed.b } else { &bed.a }))
});

planted!(a_side_stream_kept_over_iterations: ReusedTooEarly, |bed, fixed| {
    let outs: Vec<_> = (0..4).map(|_| bed.result()).collect();
    for (out, number) in outs.iter().zip(1..) {
        let x = bed.allocate(&bed.a);
        bed.fill(&bed.a, &x, number);
        bed.wait_stream(&bed.b, &bed.a);
        bed.copy(&bed.b, out, &x);
        only_if(fixed, || x.record_stream(&bed.b));
        drop(x);
        bed.pass();
    }
    outs.iter().zip(1..).any(|(out, number)| bed.is_wrong(out, number))
});

planted!(a_prefetched_batch_without_a_record: ReusedTooEarly, |bed, fixed| {
    // Batches are loaded on `b`, and used on `a`.
    let outs: Vec<_> = (0..4).map(|_| bed.result()).collect();
    for (out, number) in outs.iter().zip(1..) {
        let batch = bed.allocate(&bed.b);
        bed.fill(&bed.b, &batch, number);
        bed.wait_stream(&bed.a, &bed.b);
        only_if(fixed, || batch.record_stream(&bed.a));
        bed.copy(&bed.a, out, &batch);
    }
    outs.iter().zip(1..).any(|(out, number)| bed.is_wrong(out, number))
});

planted!(a_side_stream_that_does_not_wait_for_the_owner: ReusedTooEarly, |bed, fixed| {
    bed.fill(&bed.a, &bed.allocate(&bed.a), 1);
    let y = bed.allocate(&bed.a);
    only_if(fixed, || bed.wait_stream(&bed.b, &bed.a));
    bed.fill(&bed.b, &y, 2);
    bed.is_wrong(&y, 2)
});

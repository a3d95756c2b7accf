//! Bugs in the order of streams and frees.

use std::thread;

use cachette::Allocation;

use crate::bed::{Bed, MIB};
use crate::planted;

/// `a` writes memory, `b` reads it once `a` has, and the next owner on `a` writes it too. The program does something
/// before the read, and ends with the memory what it likes. Returns whether the read was wrong.
fn reused(bed: &Bed, before: impl FnOnce(), after: impl FnOnce(Allocation)) -> bool {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    before();
    bed.copy(&bed.b, &out, &x);
    after(x);
    bed.fill(&bed.a, &bed.allocate(&bed.a), 2);
    bed.is_wrong(&out, 1)
}

/// The program waits in some way after the read, and frees the memory then.
fn waited(bed: &Bed, before: impl FnOnce(), after: impl FnOnce()) -> bool {
    reused(bed, before, |x| {
        after();
        drop(x);
    })
}

/// Records that `b` uses memory, if the program is correct. Then it is freed.
fn recorded(bed: &Bed, fixed: bool, x: Allocation) {
    if fixed {
        x.record_stream(&bed.b);
    }
    drop(x);
}

/// Does what a correct program does at this point, or what a wrong one does.
fn only_if(wanted: bool, act: impl FnOnce()) {
    if wanted {
        act();
    }
}

planted!(a_missing_record_stream: ReusedTooEarly, |bed, fixed| {
    reused(bed, || (), |x| recorded(bed, fixed, x))
});

planted!(a_drop_on_another_thread: ReusedTooEarly, |bed, fixed| {
    reused(bed, || (), |x| {
        only_if(fixed, || x.record_stream(&bed.b));
        thread::scope(|scope| scope.spawn(|| drop(x)).join()).unwrap();
    })
});

planted!(a_record_of_another_stream: ReusedTooEarly, |bed, fixed| {
    reused(bed, || (), |x| {
        x.record_stream(if fixed { &bed.b } else { &bed.c });
        drop(x);
        bed.sync(&bed.c);
    })
});

planted!(a_release_after_the_wrong_stream: ReusedTooEarly, |bed, fixed| {
    reused(bed, || (), |x| x.release_after(&[if fixed { &bed.b } else { &bed.c }]).unwrap())
});

planted!(an_event_recorded_too_early: ReusedTooEarly, |bed, fixed| {
    let event = bed.event();
    waited(bed, || only_if(!fixed, || bed.record(&event, &bed.b)), || {
        only_if(fixed, || bed.record(&event, &bed.b));
        bed.wait(&bed.a, &event);
    })
});

planted!(an_event_waited_for_before_it_was_recorded: ReusedTooEarly, |bed, fixed| {
    let event = bed.event();
    waited(bed, || only_if(!fixed, || bed.wait(&bed.a, &event)), || {
        bed.record(&event, &bed.b);
        only_if(fixed, || bed.wait(&bed.a, &event));
    })
});

planted!(an_event_recorded_again_elsewhere_before_the_wait: ReusedTooEarly, |bed, fixed| {
    let event = bed.event();
    waited(bed, || (), || {
        bed.record(&event, &bed.b);
        only_if(!fixed, || bed.record(&event, &bed.c));
        bed.wait(&bed.a, &event);
    })
});

planted!(a_wait_the_wrong_way_round: ReusedTooEarly, |bed, fixed| {
    let (waiting, other) = if fixed { (&bed.a, &bed.b) } else { (&bed.b, &bed.a) };
    waited(bed, || (), || bed.wait_stream(waiting, other))
});

planted!(a_chain_of_waits_that_begins_too_early: ReusedTooEarly, |bed, fixed| {
    let wait = || bed.wait_stream(&bed.c, &bed.b);
    waited(bed, || only_if(!fixed, wait), || {
        only_if(fixed, wait);
        bed.wait_stream(&bed.a, &bed.c);
    })
});

planted!(a_synchronization_of_another_stream: ReusedTooEarly, |bed, fixed| {
    waited(bed, || (), || bed.sync(if fixed { &bed.b } else { &bed.a }))
});

planted!(a_synchronization_before_the_use: ReusedTooEarly, |bed, fixed| {
    waited(bed, || only_if(!fixed, || bed.sync(&bed.b)), || only_if(fixed, || bed.sync(&bed.b)))
});

planted!(a_second_use_after_the_recorded_one: ReusedTooEarly, |bed, fixed| {
    let (other, event) = (bed.result(), bed.event());
    let wrong = reused(bed, || (), |x| {
        bed.record(&event, &bed.b);
        bed.copy(&bed.b, &other, &x);
        only_if(fixed, || bed.record(&event, &bed.b));
        bed.wait(&bed.a, &event);
    });
    wrong | bed.is_wrong(&other, 1)
});

planted!(one_of_two_side_streams_is_not_recorded: ReusedTooEarly, |bed, fixed| {
    let other = bed.result();
    let wrong = reused(bed, || bed.wait_stream(&bed.c, &bed.a), |x| {
        bed.copy(&bed.c, &other, &x);
        x.record_stream(&bed.b);
        only_if(fixed, || x.record_stream(&bed.c));
        drop(x);
        bed.sync(&bed.b);
    });
    wrong | bed.is_wrong(&other, 1)
});

planted!(a_wait_that_comes_after_the_next_use: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    drop(x);
    let y = bed.allocate(&bed.a);
    only_if(fixed, || bed.wait_stream(&bed.a, &bed.b));
    bed.fill(&bed.a, &y, 2);
    bed.wait_stream(&bed.a, &bed.b);
    bed.is_wrong(&out, 1)
});

planted!(a_side_stream_kept_over_iterations: ReusedTooEarly, |bed, fixed| {
    let outs: Vec<_> = (0..4).map(|_| bed.result()).collect();
    for (out, number) in outs.iter().zip(1..) {
        let x = bed.allocate(&bed.a);
        bed.fill(&bed.a, &x, number);
        bed.wait_stream(&bed.b, &bed.a);
        bed.copy(&bed.b, out, &x);
        recorded(bed, fixed, x);
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

planted!(a_late_write_into_the_memory_of_the_next_owner: ReusedTooEarly, |bed, fixed| {
    let x = bed.allocate(&bed.a);
    bed.fill(&bed.b, &x, 1);
    recorded(bed, fixed, x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&y, 2)
});

planted!(a_side_stream_that_does_not_wait_for_the_owner: ReusedTooEarly, |bed, fixed| {
    bed.fill(&bed.a, &bed.allocate(&bed.a), 1);
    let y = bed.allocate(&bed.a);
    only_if(fixed, || bed.wait_stream(&bed.b, &bed.a));
    bed.fill(&bed.b, &y, 2);
    bed.is_wrong(&y, 2)
});

planted!(a_part_of_the_block_reused: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate_bytes(8 * MIB, &bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    recorded(bed, fixed, x);
    bed.fill(&bed.a, &bed.allocate_bytes(3 * MIB, &bed.a), 2);
    bed.is_wrong(&out, 1)
});

planted!(a_block_reused_as_a_part_of_a_larger_one: ReusedTooEarly, |bed, fixed| {
    let out = bed.result();
    // Three blocks of one segment, so that the first two merge.
    let [x, z, _last] = [(); 3].map(|()| bed.allocate_bytes(4 * MIB, &bed.a));
    for memory in [&x, &z] {
        bed.fill(&bed.a, memory, 1);
    }
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &z);
    drop(x);
    recorded(bed, fixed, z);
    bed.fill(&bed.a, &bed.allocate_bytes(8 * MIB, &bed.a), 2);
    bed.is_wrong(&out, 1)
});

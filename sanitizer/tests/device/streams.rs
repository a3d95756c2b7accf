//! Bugs in the order of streams and frees.

use crate::bed::MIB;
use crate::planted;

planted!(a_missing_record_stream: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    if fixed {
        x.record_stream(&bed.b);
    }
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_wait_that_comes_after_the_next_use: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    drop(x);
    let y = bed.allocate(&bed.a);
    if fixed {
        bed.wait_stream(&bed.a, &bed.b);
    }
    bed.fill(&bed.a, &y, 2);
    bed.wait_stream(&bed.a, &bed.b);
    bed.is_wrong(&out, 1)
});

planted!(an_event_recorded_too_early: ReusedTooEarly, |bed, fixed| {
    let (out, x, event) = (bed.result(), bed.allocate(&bed.a), bed.event());
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    if !fixed {
        bed.record(&event, &bed.b);
    }
    bed.copy(&bed.b, &out, &x);
    if fixed {
        bed.record(&event, &bed.b);
    }
    bed.wait(&bed.a, &event);
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(an_event_waited_for_before_it_was_recorded: ReusedTooEarly, |bed, fixed| {
    let (out, x, event) = (bed.result(), bed.allocate(&bed.a), bed.event());
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    if !fixed {
        bed.wait(&bed.a, &event);
    }
    bed.copy(&bed.b, &out, &x);
    bed.record(&event, &bed.b);
    if fixed {
        bed.wait(&bed.a, &event);
    }
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_wait_the_wrong_way_round: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    if fixed {
        bed.wait_stream(&bed.a, &bed.b);
    } else {
        bed.wait_stream(&bed.b, &bed.a);
    }
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_side_stream_kept_over_iterations: ReusedTooEarly, |bed, fixed| {
    let outs: Vec<_> = (0..4).map(|_| bed.result()).collect();
    for (out, number) in outs.iter().zip(1..) {
        let x = bed.allocate(&bed.a);
        bed.fill(&bed.a, &x, number);
        bed.wait_stream(&bed.b, &bed.a);
        bed.copy(&bed.b, out, &x);
        if fixed {
            x.record_stream(&bed.b);
        }
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
        if fixed {
            batch.record_stream(&bed.a);
        }
        bed.copy(&bed.a, out, &batch);
    }
    outs.iter().zip(1..).any(|(out, number)| bed.is_wrong(out, number))
});

planted!(a_late_write_into_the_memory_of_the_next_owner: ReusedTooEarly, |bed, fixed| {
    let x = bed.allocate(&bed.a);
    bed.fill(&bed.b, &x, 1);
    if fixed {
        x.record_stream(&bed.b);
    }
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&y, 2)
});

planted!(a_record_of_another_stream: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    x.record_stream(if fixed { &bed.b } else { &bed.c });
    drop(x);
    bed.sync(&bed.c);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_release_after_the_wrong_stream: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    x.release_after(&[if fixed { &bed.b } else { &bed.c }]).unwrap();
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(one_of_two_side_streams_is_not_recorded: ReusedTooEarly, |bed, fixed| {
    let (out, other, x) = (bed.result(), bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.wait_stream(&bed.c, &bed.a);
    bed.copy(&bed.b, &out, &x);
    bed.copy(&bed.c, &other, &x);
    x.record_stream(&bed.b);
    if fixed {
        x.record_stream(&bed.c);
    }
    drop(x);
    bed.sync(&bed.b);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1) | bed.is_wrong(&other, 1)
});

planted!(a_chain_of_waits_that_begins_too_early: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    if !fixed {
        bed.wait_stream(&bed.c, &bed.b);
    }
    bed.copy(&bed.b, &out, &x);
    if fixed {
        bed.wait_stream(&bed.c, &bed.b);
    }
    bed.wait_stream(&bed.a, &bed.c);
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_synchronization_of_another_stream: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    bed.sync(if fixed { &bed.b } else { &bed.a });
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_synchronization_before_the_use: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    if !fixed {
        bed.sync(&bed.b);
    }
    bed.copy(&bed.b, &out, &x);
    if fixed {
        bed.sync(&bed.b);
    }
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_part_of_the_block_reused: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate_bytes(8 * MIB, &bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    if fixed {
        x.record_stream(&bed.b);
    }
    drop(x);
    let y = bed.allocate_bytes(3 * MIB, &bed.a);
    bed.fill(&bed.a, &y, 2);
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
    if fixed {
        z.record_stream(&bed.b);
    }
    drop((x, z));
    let y = bed.allocate_bytes(8 * MIB, &bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_second_use_after_the_recorded_one: ReusedTooEarly, |bed, fixed| {
    let (out, other, x, event) = (bed.result(), bed.result(), bed.allocate(&bed.a), bed.event());
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    bed.record(&event, &bed.b);
    bed.copy(&bed.b, &other, &x);
    if fixed {
        bed.record(&event, &bed.b);
    }
    bed.wait(&bed.a, &event);
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1) | bed.is_wrong(&other, 1)
});

planted!(an_event_recorded_again_elsewhere_before_the_wait: ReusedTooEarly, |bed, fixed| {
    let (out, x, event) = (bed.result(), bed.allocate(&bed.a), bed.event());
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    bed.record(&event, &bed.b);
    if !fixed {
        bed.record(&event, &bed.c);
    }
    bed.wait(&bed.a, &event);
    drop(x);
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

planted!(a_side_stream_that_does_not_wait_for_the_owner: ReusedTooEarly, |bed, fixed| {
    let x = bed.allocate(&bed.a);
    bed.fill(&bed.a, &x, 1);
    drop(x);
    let y = bed.allocate(&bed.a);
    if fixed {
        bed.wait_stream(&bed.b, &bed.a);
    }
    bed.fill(&bed.b, &y, 2);
    bed.is_wrong(&y, 2)
});

planted!(a_drop_on_another_thread: ReusedTooEarly, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, &x);
    if fixed {
        x.record_stream(&bed.b);
    }
    std::thread::scope(|scope| scope.spawn(|| drop(x)).join()).unwrap();
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

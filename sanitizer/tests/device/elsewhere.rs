//! Bugs with pinned memory, pools, elastic segments and addresses.

use cachette::Allocation;
use cachette::sleep::Contents;

use crate::bed::Bed;
use crate::planted;

planted!(a_pinned_buffer_filled_again_while_it_is_copied: HostAccessTooEarly, |bed, fixed| {
    let (x, buffer) = (bed.allocate(&bed.a), bed.pinned());
    bed.host_fill(buffer, 1);
    bed.upload(&bed.a, &x, buffer);
    if fixed {
        bed.sync(&bed.a);
    }
    bed.host_fill(buffer, 2);
    bed.is_wrong(&x, 1)
});

planted!(a_pinned_buffer_read_before_the_copy_has_ended: HostAccessTooEarly, |bed, fixed| {
    let (x, buffer) = (bed.allocate(&bed.a), bed.pinned());
    bed.fill(&bed.a, &x, 1);
    bed.download(&bed.a, buffer, &x);
    if fixed {
        bed.sync(&bed.a);
    }
    bed.host_read(buffer) != 1
});

planted!(memory_used_by_address_after_its_drop: UsedAfterFree, |bed, fixed| {
    let (out, x) = (bed.result(), bed.allocate(&bed.a));
    bed.fill(&bed.a, &x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    let address = x.ptr().unwrap();
    if fixed {
        x.record_stream(&bed.b);
        bed.copy_at(&bed.b, &out, address);
        drop(x);
    } else {
        drop(x);
        bed.copy_at(&bed.b, &out, address);
    }
    let y = bed.allocate(&bed.a);
    bed.fill(&bed.a, &y, 2);
    bed.is_wrong(&out, 1)
});

/// `b` reads memory once `a` has written it, with a record of `b` if the program is correct. Returns what `b` read.
fn read(bed: &Bed, x: &Allocation, fixed: bool) -> Allocation {
    let out = bed.result();
    bed.fill(&bed.a, x, 1);
    bed.wait_stream(&bed.b, &bed.a);
    bed.copy(&bed.b, &out, x);
    if fixed {
        x.record_stream(&bed.b);
    }
    out
}

planted!(memory_of_a_private_pool: ReusedTooEarly, |bed, fixed| {
    let pool = bed.allocator.create_pool();
    let out = read(bed, &pool.allocate(2 << 20, &bed.a).unwrap(), fixed);
    bed.fill(&bed.a, &pool.allocate(2 << 20, &bed.a).unwrap(), 2);
    bed.is_wrong(&out, 1)
});

planted!(a_segment_freed_to_the_driver: UnmappedTooEarly, |bed, fixed| {
    let out = read(bed, &bed.allocate_bytes(32 << 20, &bed.a), fixed);
    let emptied = bed.allocator.empty_cache();
    bed.is_wrong(&out, 1) | emptied.is_err()
});

planted!(
    an_elastic_chunk_moved_to_another_stream: UnmappedTooEarly,
    "expandable_segments:True,elastic_setting:compact",
    |bed, fixed| {
        let out = read(bed, &bed.allocate_bytes(40 << 20, &bed.a), fixed);
        // More than the rest of the device, so the chunks move.
        let y = bed.allocator.allocate(40 << 20, &bed.c);
        bed.is_wrong(&out, 1) | y.is_err()
    }
);

planted!(
    memory_of_a_sleeping_pool: UsedAsleep,
    "expandable_segments:True,elastic_setting:compact",
    |bed, fixed| {
        let (out, pool) = (bed.result(), bed.allocator.create_pool());
        let x = pool.allocate(2 << 20, &bed.a).unwrap();
        bed.fill(&bed.a, &x, 1);
        pool.sleep(Contents::Keep).unwrap();
        if fixed {
            pool.wake().unwrap();
        }
        bed.copy(&bed.a, &out, &x);
        bed.is_wrong(&out, 1)
    }
);

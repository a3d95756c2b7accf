//! Memory allocated from the driver directly.

use cachette_hal::{Device, ErrorKind};

use crate::rig::prelude::*;

cases! { memory:
    /// Every address is a multiple of the device's base alignment.
    addresses_are_aligned();
    /// No two live allocations share a byte.
    live_ranges_do_not_overlap();
    /// Hundreds of small allocations live at once without sharing a byte.
    many_small_allocations_live_together();
    /// What is written to one allocation stays while others are written.
    content_is_kept(Transfer);
    /// An allocation of one byte holds that byte.
    a_single_byte_can_be_allocated(Transfer);
    /// Freeing every second allocation leaves the content of the others.
    freeing_one_keeps_its_neighbours(Transfer);
    /// An allocation made after a free holds what is written to it.
    what_was_freed_can_be_allocated_again(Transfer);
    /// A size of zero is an invalid value.
    zero_bytes_is_an_invalid_value();
    /// A request for more than the device has is out of memory.
    more_than_the_device_has_is_out_of_memory();
    /// A size near the end of the address space is refused and not wrapped around.
    an_absurd_size_is_refused();
    /// After a request that was too large, others succeed and old content is kept.
    exhaustion_leaves_the_device_usable(Transfer);
    /// Memory information shows less free memory after an allocation.
    free_memory_falls_with_an_allocation();
    /// Memory information shows more free memory after a free.
    free_memory_rises_with_a_free();
    /// Allocating and freeing many times leaves as much free memory as before.
    nothing_is_lost_over_many_rounds();
}

/// Large enough to stand out from other activity.
const LARGE: u64 = 32 * MIB;

fn addresses_are_aligned(on: &Subject) -> Verdict {
    let alignment = on.device.info().base_alignment;
    let mut live = Vec::new();
    for bytes in [1, 3, 511, 513, 4097, 64 * KIB, MIB + 1] {
        let memory = on.memory(bytes)?;
        let ptr = memory.ptr();
        ensure!(ptr.address().is_multiple_of(alignment), "{bytes} bytes at {ptr} are not aligned to {alignment}")?;
        live.push(memory);
    }
    Ok(())
}

fn live_ranges_do_not_overlap(on: &Subject) -> Verdict {
    let sizes = [1, 300, 4 * KIB, 5 * KIB, MIB, 3 * MIB, 7, 2 * MIB + 9];
    let live = sizes.map(|bytes| on.memory(bytes)).into_iter().collect::<Result<Vec<_>, _>>()?;
    none_overlap(live.iter().map(|memory| memory.span().range()))
}

fn many_small_allocations_live_together(on: &Subject) -> Verdict {
    let live = (0..300).map(|i| on.memory(1 + i * 37)).collect::<Result<Vec<_>, _>>()?;
    none_overlap(live.iter().map(|memory| memory.span().range()))
}

fn content_is_kept(on: &Subject) -> Verdict {
    let live = (1..=12).map(|i| on.memory(i * 33 * KIB + i)).collect::<Result<Vec<_>, _>>()?;
    for (seed, memory) in (1..).zip(&live) {
        on.put_pattern(memory.span(), seed)?;
    }
    for (seed, memory) in (1..).zip(&live) {
        on.expect_pattern(memory.span(), seed, "an allocation among others")?;
    }
    Ok(())
}

fn a_single_byte_can_be_allocated(on: &Subject) -> Verdict {
    let memory = on.memory(1)?;
    on.put(memory.span(), &[0xa7])?;
    on.expect_byte(memory.span(), 0xa7, "the byte")
}

fn freeing_one_keeps_its_neighbours(on: &Subject) -> Verdict {
    let mut kept = Vec::new();
    let mut freed = Vec::new();
    for seed in 0..16 {
        let memory = on.memory(48 * KIB)?;
        on.put_pattern(memory.span(), seed)?;
        let place = if seed % 2 == 0 { &mut kept } else { &mut freed };
        place.push((seed, memory));
    }
    for (_, memory) in freed.into_iter().rev() {
        memory.close()?;
    }
    for (seed, memory) in &kept {
        on.expect_pattern(memory.span(), *seed, "a neighbour of freed memory")?;
    }
    Ok(())
}

fn what_was_freed_can_be_allocated_again(on: &Subject) -> Verdict {
    for seed in 0..24 {
        let memory = on.memory(MIB)?;
        on.round_trip(memory.span().part(0, 32 * KIB), seed, "the allocation")?;
        memory.close()?;
    }
    Ok(())
}

fn zero_bytes_is_an_invalid_value(on: &Subject) -> Verdict {
    refuse(on.memory(0), &[ErrorKind::InvalidValue], "a size of zero").map(drop)
}

fn more_than_the_device_has_is_out_of_memory(on: &Subject) -> Verdict {
    let total = on.device.info().total_memory;
    for bytes in [total + 2 * MIB, total * 2, total * 64] {
        let what = format!("{bytes} bytes on a device of {total}");
        refuse(on.memory(bytes), &[ErrorKind::OutOfMemory], &what)?;
    }
    Ok(())
}

fn an_absurd_size_is_refused(on: &Subject) -> Verdict {
    let kinds = [ErrorKind::OutOfMemory, ErrorKind::InvalidValue];
    for bytes in [u64::MAX, u64::MAX - 4095, 1 << 62] {
        refuse(on.memory(bytes), &kinds, "an absurd size")?;
    }
    Ok(())
}

fn exhaustion_leaves_the_device_usable(on: &Subject) -> Verdict {
    let before = on.memory(MIB)?;
    on.put_pattern(before.span(), 1)?;
    let total = on.device.info().total_memory;
    for _ in 0..4 {
        refuse(on.memory(total + MIB), &[ErrorKind::OutOfMemory], "too large a size")?;
    }
    let after = on.memory(MIB)?;
    on.put_pattern(after.span(), 2)?;
    on.expect_pattern(before.span(), 1, "memory from before")?;
    on.expect_pattern(after.span(), 2, "memory from after")
}

fn free_memory_falls_with_an_allocation(on: &Subject) -> Verdict {
    eventually(&format!("{LARGE} bytes were taken, and free memory fell"), || {
        let before = on.free_memory()?;
        let memory = on.memory(LARGE)?;
        let fall = before.saturating_sub(on.free_memory()?);
        memory.close()?;
        Ok((fall >= LARGE / 2, fall))
    })
}

fn free_memory_rises_with_a_free(on: &Subject) -> Verdict {
    eventually(&format!("{LARGE} bytes were given back, and free memory rose"), || {
        let memory = on.memory(LARGE)?;
        let before = on.free_memory()?;
        memory.close()?;
        let rise = on.free_memory()?.saturating_sub(before);
        Ok((rise >= LARGE / 2, rise))
    })
}

fn nothing_is_lost_over_many_rounds(on: &Subject) -> Verdict {
    const ROUNDS: u64 = 16;
    eventually("bytes lost by rounds of allocating and freeing", || {
        let before = on.free_memory()?;
        for _ in 0..ROUNDS {
            on.memory(4 * MIB)?.close()?;
        }
        let loss = before.saturating_sub(on.free_memory()?);
        Ok((loss < ROUNDS * MIB, loss))
    })
}

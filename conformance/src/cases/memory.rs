//! Memory allocated from the driver directly.

use cachette_hal::{Device, ErrorKind};

use crate::rig::prelude::*;

cases! { memory:
    /// Every address is a multiple of the device's base alignment.
    addresses_are_aligned();
    /// No two live allocations share a byte, also among hundreds of small ones.
    live_ranges_do_not_overlap();
    /// What is written to one allocation stays while others are written, and when every second one is freed.
    content_is_kept(Transfer);
    /// An allocation made after a free holds what is written to it.
    what_was_freed_can_be_allocated_again(Transfer);
    /// A size of zero is an invalid value.
    zero_bytes_is_an_invalid_value();
    /// A request for more than the device has is out of memory; a size near the end of the address space is refused.
    more_than_the_device_has_is_out_of_memory();
    /// Memory information shows less free memory after an allocation, and more after a free.
    free_memory_falls_and_rises();
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
    let sizes = [1, 300, 4 * KIB, 5 * KIB, MIB, 3 * MIB, 7, 2 * MIB + 9].into_iter();
    let live =
        sizes.chain((0..300).map(|i| 1 + i * 37)).map(|bytes| on.memory(bytes)).collect::<Result<Vec<_>, _>>()?;
    none_overlap(live.iter().map(|memory| memory.span().range()))
}

fn content_is_kept(on: &Subject) -> Verdict {
    let mut live = Vec::new();
    for seed in 1..=16 {
        let memory = on.memory(seed * 33 * KIB + seed)?;
        on.put_pattern(memory.span(), seed)?;
        live.push((seed, memory));
    }
    for (seed, memory) in &live {
        on.expect_pattern(memory.span(), *seed, "an allocation among others")?;
    }
    let (freed, kept): (Vec<_>, Vec<_>) = live.into_iter().partition(|(seed, _)| seed % 2 == 0);
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
    for bytes in [u64::MAX, u64::MAX - 4095, 1 << 62] {
        refuse(on.memory(bytes), &[ErrorKind::OutOfMemory, ErrorKind::InvalidValue], "an absurd size")?;
    }
    Ok(())
}

fn free_memory_falls_and_rises(on: &Subject) -> Verdict {
    eventually(&format!("free before, during and after {LARGE} bytes"), || {
        let before = on.free_memory()?;
        let memory = on.memory(LARGE)?;
        let during = on.free_memory()?;
        memory.close()?;
        let after = on.free_memory()?;
        Ok((during + LARGE / 2 <= before.min(after), (before, during, after)))
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

//! Memory taken from the driver directly.

use cachette_hal::{Device, ErrorKind};

use crate::case::{Case, case};
use crate::failure::{Verdict, ensure};
use crate::rig::{KIB, MIB, Memory, Place, Subject, refuse};

pub(super) const CASES: &[Case] = &[
    case!(memory::addresses_are_aligned, [], "Every address is a multiple of the device's base alignment."),
    case!(memory::live_ranges_do_not_overlap, [], "No two live allocations share a byte."),
    case!(
        memory::many_small_allocations_live_together,
        [],
        "Hundreds of small allocations live at once without sharing a byte."
    ),
    case!(memory::content_is_kept, [Transfer], "What is written to one allocation stays while others are written."),
    case!(memory::a_single_byte_can_be_allocated, [Transfer], "An allocation of one byte holds that byte."),
    case!(
        memory::freeing_one_keeps_its_neighbours,
        [Transfer],
        "Freeing every second allocation leaves the content of the others."
    ),
    case!(
        memory::what_was_freed_can_be_allocated_again,
        [Transfer],
        "An allocation made after a free holds what is written to it."
    ),
    case!(memory::zero_bytes_is_an_invalid_value, [], "A size of zero is an invalid value."),
    case!(
        memory::more_than_the_device_has_is_out_of_memory,
        [],
        "A request for more than the device has is out of memory."
    ),
    case!(
        memory::an_absurd_size_is_refused,
        [],
        "A size near the end of the address space is refused and not wrapped around."
    ),
    case!(
        memory::exhaustion_leaves_the_device_usable,
        [Transfer],
        "After a request that was too large, others succeed and old content is kept."
    ),
    case!(
        memory::free_memory_falls_with_an_allocation,
        [],
        "Memory information shows less free memory after an allocation."
    ),
    case!(memory::free_memory_rises_with_a_free, [], "Memory information shows more free memory after a free."),
    case!(
        memory::nothing_is_lost_over_many_rounds,
        [],
        "Allocating and freeing many times leaves as much free memory as before."
    ),
];

/// Other processes use the device too, so accounts are asked several times and compared loosely.
const ATTEMPTS: u32 = 8;
/// Large enough to stand out from what others do.
const LARGE: u64 = 32 * MIB;

fn addresses_are_aligned(on: &Subject) -> Verdict {
    let alignment = on.device().info().base_alignment;
    let mut live = Vec::new();
    for bytes in [1, 3, 511, 513, 4097, 64 * KIB, MIB + 1] {
        let memory = on.memory(bytes)?;
        let ptr = memory.ptr();
        ensure!(ptr.address().is_multiple_of(alignment), "{bytes} bytes at {ptr} are not aligned to {alignment}");
        live.push(memory);
    }
    Ok(())
}

/// Checks every pair by sorting.
fn none_overlap(live: &[Memory]) -> Verdict {
    let mut spans: Vec<_> = live.iter().map(Place::span).collect();
    spans.sort_by_key(|span| span.start());
    for pair in spans.windows(2) {
        let (left, right) = (pair[0], pair[1]);
        ensure!(!left.overlaps(right), "{left:?} overlaps {right:?}");
    }
    Ok(())
}

fn live_ranges_do_not_overlap(on: &Subject) -> Verdict {
    let mut live = Vec::new();
    for bytes in [1, 300, 4 * KIB, 5 * KIB, MIB, 3 * MIB, 7, 2 * MIB + 9] {
        live.push(on.memory(bytes)?);
    }
    none_overlap(&live)
}

fn many_small_allocations_live_together(on: &Subject) -> Verdict {
    let live: Result<Vec<_>, _> = (0..300).map(|i| on.memory(1 + i * 37)).collect();
    none_overlap(&live?)
}

fn content_is_kept(on: &Subject) -> Verdict {
    let live: Result<Vec<_>, _> = (1..=12).map(|i| on.memory(i * 33 * KIB + i)).collect();
    let live = live?;
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
        on.put_pattern(memory.span().part(0, 32 * KIB), seed)?;
        on.expect_pattern(memory.span().part(0, 32 * KIB), seed, "the allocation")?;
        memory.close()?;
    }
    Ok(())
}

fn zero_bytes_is_an_invalid_value(on: &Subject) -> Verdict {
    refuse(on.memory(0), &[ErrorKind::InvalidValue], "a size of zero")?;
    Ok(())
}

fn more_than_the_device_has_is_out_of_memory(on: &Subject) -> Verdict {
    let total = on.device().info().total_memory;
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
    let total = on.device().info().total_memory;
    for _ in 0..4 {
        refuse(on.memory(total + MIB), &[ErrorKind::OutOfMemory], "too large a size")?;
    }
    let after = on.memory(MIB)?;
    on.put_pattern(after.span(), 2)?;
    on.expect_pattern(before.span(), 1, "memory from before")?;
    on.expect_pattern(after.span(), 2, "memory from after")
}

fn free_memory_falls_with_an_allocation(on: &Subject) -> Verdict {
    let mut falls = Vec::new();
    for _ in 0..ATTEMPTS {
        let before = on.free_memory()?;
        let memory = on.memory(LARGE)?;
        let fall = before.saturating_sub(on.free_memory()?);
        memory.close()?;
        if fall >= LARGE / 2 {
            return Ok(());
        }
        falls.push(fall);
    }
    ensure!(falls.is_empty(), "{LARGE} bytes were taken, and free memory fell by {falls:?}");
    Ok(())
}

fn free_memory_rises_with_a_free(on: &Subject) -> Verdict {
    let mut rises = Vec::new();
    for _ in 0..ATTEMPTS {
        let memory = on.memory(LARGE)?;
        let before = on.free_memory()?;
        memory.close()?;
        let rise = on.free_memory()?.saturating_sub(before);
        if rise >= LARGE / 2 {
            return Ok(());
        }
        rises.push(rise);
    }
    ensure!(rises.is_empty(), "{LARGE} bytes were given back, and free memory rose by {rises:?}");
    Ok(())
}

fn nothing_is_lost_over_many_rounds(on: &Subject) -> Verdict {
    const ROUNDS: u64 = 16;
    let mut losses = Vec::new();
    for _ in 0..ATTEMPTS {
        let before = on.free_memory()?;
        for _ in 0..ROUNDS {
            on.memory(4 * MIB)?.close()?;
        }
        let loss = before.saturating_sub(on.free_memory()?);
        if loss < ROUNDS * MIB {
            return Ok(());
        }
        losses.push(loss);
    }
    ensure!(losses.is_empty(), "rounds of allocating and freeing lost {losses:?} bytes");
    Ok(())
}

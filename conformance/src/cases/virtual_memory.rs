//! Reservations, backings, mappings and aliases.

use cachette_hal::{Device, DevicePtr, ErrorKind, Granularity, Result, Sharing};

use crate::rig::prelude::*;

cases! { virtual_memory:
    /// The minimum granularity is a power of two and the recommended one a multiple of it, to which reserved addresses are
    /// aligned.
    reservations_are_aligned(VirtualMemory);
    /// No two live reservations share an address, nor one with an allocation.
    reservations_do_not_overlap(VirtualMemory);
    /// More addresses can be reserved than the device has memory.
    a_reservation_may_exceed_the_device(VirtualMemory);
    /// A wish for an address that is taken does not fail, and does not get it.
    a_wish_is_only_a_wish(VirtualMemory);
    /// A reservation of no bytes, and a backing of none or of no multiple of the minimum granularity, are invalid values.
    an_odd_size_is_an_invalid_value(VirtualMemory);
    /// A backing of more than the device has is out of memory, and the device stays usable.
    a_backing_larger_than_the_device_is_out_of_memory(VirtualMemory);
    /// No two live backings share a handle, and each knows its size.
    live_backings_have_different_handles(VirtualMemory);
    /// Adjacent mappings made in any order are one range to fills and copies.
    chunks_mapped_in_any_order_make_one_range(VirtualMemory, Transfer);
    /// What is written through one mapping of a backing is read through another, both ways.
    aliases_are_the_same_bytes(VirtualMemory, Transfer);
    /// Work of one stream that alternates between aliases sees each of its earlier writes.
    aliases_are_coherent_in_stream_order(VirtualMemory, Transfer);
    /// Unmapping one alias leaves the other and its content.
    unmapping_one_alias_keeps_the_other(VirtualMemory, Transfer);
    /// A backing that is unmapped and mapped elsewhere brings its content along.
    content_moves_with_its_backing(VirtualMemory, Transfer);
    /// Destroying a backing's handle leaves its mappings and their content.
    a_destroyed_backing_stays_while_mapped(VirtualMemory, Transfer);
    /// Mapping at addresses that are not reserved fails and leaves the backing usable.
    mapping_outside_a_reservation_is_an_invalid_value(VirtualMemory);
}

fn reservations_are_aligned(on: &Subject) -> Verdict {
    let Granularity { minimum, recommended: grain } = on.device.virtual_memory()?.granularity();
    ensure!(minimum.is_power_of_two() && grain >= minimum && grain.is_multiple_of(minimum), "{minimum} and {grain}")?;
    let mut live = Vec::new();
    for grains in [1, 3, 1, 7, 64] {
        let reservation = on.reservation(grains * grain)?;
        let start = reservation.start();
        ensure!(start.address().is_multiple_of(grain), "{start} is not aligned to {grain}")?;
        live.push(reservation);
    }
    Ok(())
}

fn reservations_do_not_overlap(on: &Subject) -> Verdict {
    let memory = on.memory(MIB)?;
    let live = (1..24).map(|chunks| on.chunk_reservation(chunks)).collect::<Result<Vec<_>, _>>()?;
    let reserved = live.iter().map(|reservation| (reservation.start().address(), reservation.bytes()));
    none_overlap(reserved.chain([memory.span().range()]))
}

fn a_reservation_may_exceed_the_device(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let bytes = on.device.info().total_memory.next_multiple_of(chunk) + 64 * chunk;
    let reservation = on.reservation(bytes)?;
    ensure_eq!(reservation.bytes(), bytes, "the bytes reserved")?;
    Ok(reservation.close()?)
}

fn a_wish_is_only_a_wish(on: &Subject) -> Verdict {
    let (chunk, taken, memory) = (on.chunk()?, on.chunk_reservation(2)?, on.device.virtual_memory()?);
    let start = memory.reserve(2 * chunk, Some(taken.start()))?;
    // SAFETY: 1. the range was just reserved, and nothing is mapped in it.
    unsafe { memory.release(start, 2 * chunk) }?;
    let (wished, end) = (taken.start().address(), taken.start().address() + 2 * chunk);
    let apart = start.address() >= end || start.address() + 2 * chunk <= wished;
    ensure!(apart, "the addresses at {wished:#x} were given out twice")
}

fn an_odd_size_is_an_invalid_value(on: &Subject) -> Verdict {
    let invalid = [ErrorKind::InvalidValue];
    refuse(on.reservation(0), &invalid, "a reservation of no bytes")?;
    let minimum = on.device.virtual_memory()?.granularity().minimum;
    for bytes in [0, 1, minimum - 1, minimum + 1, minimum * 2 + 4096] {
        if bytes == 0 || !bytes.is_multiple_of(minimum) {
            refuse(on.backing(bytes, Sharing::Private), &invalid, &format!("a backing of {bytes} bytes"))?;
        }
    }
    Ok(())
}

fn a_backing_larger_than_the_device_is_out_of_memory(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let bytes = on.device.info().total_memory.next_multiple_of(chunk) + chunk;
    let backing = on.backing(bytes, Sharing::Private);
    refuse(backing, &[ErrorKind::OutOfMemory], "more than the device has")?;
    Ok(on.chunk_backing()?.close()?)
}

fn live_backings_have_different_handles(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let live = (0..8).map(|_| on.chunk_backing()).collect::<Result<Vec<_>, _>>()?;
    for (i, backing) in live.iter().enumerate() {
        ensure_eq!(backing.get().bytes(), chunk, "a backing's size")?;
        let again = live[..i].iter().any(|earlier| earlier.get().raw() == backing.get().raw());
        ensure!(!again, "{:?} was given out twice", backing.get())?;
    }
    Ok(())
}

fn chunks_mapped_in_any_order_make_one_range(on: &Subject) -> Verdict {
    let (chunk, reservation) = (on.chunk()?, on.chunk_reservation(4)?);
    let mut mappings = Vec::new();
    for place in [2, 0, 3, 1] {
        mappings.push(on.map(&reservation, place * chunk, &on.chunk_backing()?)?);
    }
    mappings.sort_by_key(cachette_hal::owned::OwnedMapping::ptr);
    let all = Span::joined(&mappings);
    let (stream, copy) = (on.stream()?, on.memory(2 * chunk)?);
    on.round_trip(all, 1, "the whole range")?;
    // Half a chunk, a whole one, and half of the next.
    let middle = all.part(chunk / 2, 2 * chunk);
    on.fill(middle, 6, &stream)?;
    on.copy(copy.span(), middle, &stream)?;
    stream.synchronize()?;
    on.expect_byte(copy.span(), 6, "a copy across the borders of mappings")
}

fn aliases_are_the_same_bytes(on: &Subject) -> Verdict {
    let (chunk, reservation, backing) = (on.chunk()?, on.chunk_reservation(3)?, on.chunk_backing()?);
    let one = on.map(&reservation, 0, &backing)?;
    let two = on.map(&reservation, 2 * chunk, &backing)?;
    on.put_pattern(one.span(), 1)?;
    on.expect_pattern(two.span(), 1, "the second alias")?;
    on.put_pattern(two.span().part(64 * KIB, 64 * KIB), 2)?;
    on.expect_pattern(one.span().part(64 * KIB, 64 * KIB), 2, "the first alias")
}

fn aliases_are_coherent_in_stream_order(on: &Subject) -> Verdict {
    const BYTES: u64 = 64 * KIB;
    let (chunk, reservation, backing) = (on.chunk()?, on.chunk_reservation(2)?, on.chunk_backing()?);
    let one = on.map(&reservation, 0, &backing)?;
    let two = on.map(&reservation, chunk, &backing)?;
    let (stream, seen) = (on.stream()?, on.filled(16 * BYTES, 0xff)?);
    for round in 0..16_u8 {
        let (writes, reads) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        on.fill(writes.span().part(0, BYTES), round, &stream)?;
        on.copy(seen.span().nth(round, BYTES), reads.span().part(0, BYTES), &stream)?;
    }
    stream.synchronize()?;
    on.expect_parts(seen.span(), BYTES, 0, "what the other alias showed")
}

fn unmapping_one_alias_keeps_the_other(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let one = on.map(&reservation, 0, &backing)?;
    let two = on.map(&reservation, on.chunk()?, &backing)?;
    on.put_pattern(one.span(), 1)?;
    one.close()?;
    on.expect_pattern(two.span(), 1, "the alias that stayed")?;
    on.round_trip(two.span(), 2, "the alias that stayed, written again")
}

fn content_moves_with_its_backing(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(8)?, on.chunk_backing()?);
    let first = on.map(&reservation, 0, &backing)?;
    on.put_pattern(first.span(), 1)?;
    first.close()?;
    for place in [5, 2, 7, 0] {
        let mapping = on.map(&reservation, place * on.chunk()?, &backing)?;
        on.expect_pattern(mapping.span(), 1, "the backing at its new place")?;
        mapping.close()?;
    }
    Ok(())
}

fn a_destroyed_backing_stays_while_mapped(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    backing.close()?;
    on.expect_pattern(mapping.span(), 1, "the mapping of a destroyed backing")?;
    on.round_trip(mapping.span(), 2, "the same mapping, written again")?;
    Ok(mapping.close()?)
}

fn mapping_outside_a_reservation_is_an_invalid_value(on: &Subject) -> Verdict {
    let (chunk, backing, reservation) = (on.chunk()?, on.chunk_backing()?, on.chunk_reservation(2)?);
    let gone = on.chunk_reservation(4)?;
    let start = gone.start();
    gone.close()?;
    for at in [Some(start), DevicePtr::new(chunk)].into_iter().flatten() {
        refuse(map_anywhere(on, at, &backing), &[ErrorKind::InvalidValue], "unreserved addresses")?;
    }
    Ok(on.map(&reservation, 0, &backing)?.close()?)
}

/// Maps without an owner, returns the result of `set_access`, and undoes what succeeded.
fn map_anywhere(on: &Subject, at: DevicePtr, backing: &Backing) -> Result<()> {
    let memory = on.device.virtual_memory()?;
    // SAFETY: 1. the backing's owner lives.
    unsafe { memory.map(at, backing.get()) }?;
    // SAFETY: 2. no right is removed.
    let granted = unsafe { memory.set_access(at, backing.get().bytes(), &on.read_write()) };
    // SAFETY: 2. no work uses the range.
    unsafe { memory.unmap(at, backing.get().bytes()) }?;
    granted
}

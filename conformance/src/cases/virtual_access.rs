//! Unmaps, releases, access rights and accounting of virtual memory.

use cachette_hal::{Access, Device, ErrorKind, Ordinal, Sharing};

use crate::rig::prelude::*;

cases! { virtual_memory:
    /// Unmapping a range where nothing is mapped, or twice, fails.
    unmapping_what_is_not_mapped_is_an_invalid_value(VirtualMemory);
    /// Unmapping a part of a mapping fails and leaves it whole.
    unmapping_a_part_is_an_invalid_value(VirtualMemory, Transfer);
    /// A reservation with a mapping inside is not released, and the mapping stays.
    releasing_with_a_mapping_inside_is_an_invalid_value(VirtualMemory, Transfer);
    /// Reserving and releasing many times never runs out of addresses.
    released_addresses_can_be_reserved_again(VirtualMemory);
    /// One call sets the rights of a range made of adjacent mappings.
    access_is_set_over_several_mappings_at_once(VirtualMemory, Transfer);
    /// Setting rights where nothing is mapped fails.
    access_to_what_is_not_mapped_is_refused(VirtualMemory);
    /// Setting rights for a device that does not exist fails, and rights stay as they were.
    access_for_an_unknown_device_is_refused(VirtualMemory, Transfer);
    /// A device that is named reads and writes another's mapping.
    access_can_be_given_to_another_device(VirtualMemory, Transfer, PeerAccess).on_devices(2);
    /// A mapping is made, granted and used by one stream while another is held.
    mapping_does_not_wait_for_a_held_stream(VirtualMemory, HostCalls, Transfer);
    /// A mapping that no work uses is unmapped while a stream is held.
    unmapping_does_not_wait_for_a_held_stream(VirtualMemory, HostCalls);
    /// A backing gets a second address while held work still names the first, and both see it.
    a_chunk_moves_behind_work_in_flight(VirtualMemory, HostCalls, Transfer);
    /// Reserving addresses leaves free memory as it was.
    a_reservation_takes_no_memory(VirtualMemory);
    /// Creating a backing takes free memory, and destroying it unmapped gives it back.
    a_backing_takes_memory(VirtualMemory);
}

/// Large enough to stand out from the activity of other processes.
const LARGE: u64 = 32 * MIB;

fn unmapping_what_is_not_mapped_is_an_invalid_value(on: &Subject) -> Verdict {
    let (chunk, reservation, backing) = (on.chunk()?, on.chunk_reservation(2)?, on.chunk_backing()?);
    let memory = on.device.virtual_memory()?;
    let invalid = [ErrorKind::InvalidValue];
    // SAFETY: 2. no work uses the range, since nothing is mapped there.
    let never = unsafe { memory.unmap(reservation.start(), chunk) };
    refuse(never, &invalid, "an unmap of nothing")?;
    let mapping = on.map(&reservation, 0, &backing)?;
    let at = mapping.ptr();
    mapping.close()?;
    // SAFETY: 2. no work uses the range, since nothing is mapped there any more.
    let twice = unsafe { memory.unmap(at, chunk) };
    refuse(twice, &invalid, "a second unmap").map(drop)
}

fn unmapping_a_part_is_an_invalid_value(on: &Subject) -> Verdict {
    let minimum = on.device.virtual_memory()?.granularity().minimum;
    let bytes = 2 * on.chunk()?.max(minimum);
    let reservation = on.reservation(bytes)?;
    let backing = on.backing(bytes, Sharing::Private)?;
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    let memory = on.device.virtual_memory()?;
    for at in [mapping.ptr(), mapping.ptr().add(minimum)] {
        // SAFETY: 2. no queued work uses the range.
        let part = unsafe { memory.unmap(at, minimum) };
        refuse(part, &[ErrorKind::InvalidValue], "an unmap of a part")?;
    }
    on.expect_pattern(mapping.span(), 1, "the mapping")
}

fn releasing_with_a_mapping_inside_is_an_invalid_value(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    let memory = on.device.virtual_memory()?;
    // SAFETY: 1. the reservation lives; the call is documented to reject it.
    let released = unsafe { memory.release(reservation.start(), reservation.bytes()) };
    refuse(released, &[ErrorKind::InvalidValue], "a release with a mapping inside")?;
    on.expect_pattern(mapping.span(), 1, "the mapping inside")?;
    mapping.close()?;
    Ok(reservation.close()?)
}

fn released_addresses_can_be_reserved_again(on: &Subject) -> Verdict {
    let bytes = on.device.info().total_memory.next_multiple_of(on.chunk()?);
    for _ in 0..256 {
        on.reservation(bytes)?.close()?;
    }
    Ok(())
}

fn access_is_set_over_several_mappings_at_once(on: &Subject) -> Verdict {
    let (chunk, reservation) = (on.chunk()?, on.chunk_reservation(5)?);
    let mut mappings = Vec::new();
    for place in 1..4 {
        mappings.push(reservation.map(place * chunk, &on.chunk_backing()?)?);
    }
    reservation.set_access(chunk, 3 * chunk, &on.read_write())?;
    on.round_trip(Span::joined(&mappings), 1, "the mappings together")
}

fn access_to_what_is_not_mapped_is_refused(on: &Subject) -> Verdict {
    let (chunk, reservation, backing) = (on.chunk()?, on.chunk_reservation(3)?, on.chunk_backing()?);
    let kinds = [ErrorKind::InvalidValue];
    let nothing = reservation.set_access(0, chunk, &on.read_write());
    refuse(nothing, &kinds, "access to a bare reservation")?;
    let mapping = on.map(&reservation, 0, &backing)?;
    let beyond = reservation.set_access(0, 2 * chunk, &on.read_write());
    refuse(beyond, &kinds, "access beyond a mapping")?;
    Ok(mapping.close()?)
}

fn access_for_an_unknown_device_is_refused(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    let unknown = mapping.set_access(&[Access::ReadWrite(Ordinal(4000))]);
    let kinds = [ErrorKind::NoSuchDevice, ErrorKind::InvalidValue];
    refuse(unknown, &kinds, "access for a device that does not exist")?;
    on.round_trip(mapping.span(), 1, "the mapping")
}

fn access_can_be_given_to_another_device(on: &Subject) -> Verdict {
    on.reachable_peer()?;
    let (other, reservation, backing) = (on.other_device()?, on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = reservation.map(0, &backing)?;
    let both = [Access::ReadWrite(on.ordinal), Access::ReadWrite(on.other_ordinal())];
    mapping.set_access(&both)?;
    on.put_pattern(mapping.span().part(0, 64 * KIB), 1)?;
    let stream = Stream::create(other.clone())?;
    let (from, to) = (mapping.span().part(0, 64 * KIB), mapping.span().part(MIB, 64 * KIB));
    copy_by(&other, to, from, &stream)?;
    stream.synchronize()?;
    on.expect_pattern(to, 1, "what the other device copied")
}

fn mapping_does_not_wait_for_a_held_stream(on: &Subject) -> Verdict {
    let (chunk, reservation, backing) = (on.chunk()?, on.chunk_reservation(1)?, on.chunk_backing()?);
    let (held, other) = (on.stream()?, on.stream()?);
    let (event, seen) = (on.event()?, on.filled(64 * KIB, 1)?);
    let gate = on.hold_warm(&held)?;
    event.record(&held)?;
    let mapping = reservation.map(0, &backing)?;
    let memory = on.device.virtual_memory()?;
    // SAFETY: 2. no right is removed.
    unsafe { memory.set_access(mapping.ptr(), chunk, &on.read_write()) }?;
    on.fill(mapping.span(), 6, &other)?;
    on.copy(seen.span(), mapping.span().part(chunk - 64 * KIB, 64 * KIB), &other)?;
    other.synchronize()?;
    ensure!(!event.poll()?.is_done(), "the held stream was waited for")?;
    gate.release();
    on.expect_byte(seen.span(), 6, "what went through the new mapping")
}

fn unmapping_does_not_wait_for_a_held_stream(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    let held = on.stream()?;
    let (event, _gate) = on.hold_marked(&held)?;
    let memory = on.device.virtual_memory()?;
    // SAFETY: 2. no work that uses the mapping was ever queued.
    unsafe { memory.unmap(mapping.ptr(), mapping.bytes()) }?;
    ensure!(!event.poll()?.is_done(), "the held stream was waited for")
}

fn a_chunk_moves_behind_work_in_flight(on: &Subject) -> Verdict {
    let (chunk, reservation, backing) = (on.chunk()?, on.chunk_reservation(2)?, on.chunk_backing()?);
    let old = on.map(&reservation, 0, &backing)?;
    let (stream, event, seen) = (on.stream()?, on.event()?, on.filled(64 * KIB, 1)?);
    let gate = on.hold_warm(&stream)?;
    on.fill(old.span(), 6, &stream)?;
    event.record(&stream)?;
    let new = reservation.map(chunk, &backing)?;
    let memory = on.device.virtual_memory()?;
    // SAFETY: 2. no right is removed.
    unsafe { memory.set_access(new.ptr(), chunk, &on.read_write()) }?;
    ensure!(!event.poll()?.is_done(), "the work in flight was waited for")?;
    on.copy(seen.span(), new.span().part(0, 64 * KIB), &stream)?;
    gate.release_and_wait(&stream)?;
    on.expect_byte(seen.span(), 6, "what the old address was given, read at the new one")
}

fn a_reservation_takes_no_memory(on: &Subject) -> Verdict {
    let bytes = on.device.info().total_memory.next_multiple_of(on.chunk()?);
    eventually("by how much free memory fell", || {
        let before = on.free_memory()?;
        let reservation = on.reservation(bytes)?;
        let fall = before.saturating_sub(on.free_memory()?);
        reservation.close()?;
        Ok((fall < LARGE, fall))
    })
}

fn a_backing_takes_memory(on: &Subject) -> Verdict {
    let bytes = LARGE.next_multiple_of(on.chunk()?);
    eventually(&format!("free before, during and after {bytes} bytes"), || {
        let before = on.free_memory()?;
        let backing = on.backing(bytes, Sharing::Private)?;
        let during = on.free_memory()?;
        backing.close()?;
        let after = on.free_memory()?;
        Ok((during + LARGE / 2 <= before && during + LARGE / 2 <= after, (before, during, after)))
    })
}

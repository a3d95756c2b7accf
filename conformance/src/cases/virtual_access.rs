//! Unmapping, releasing, rights and accounts of virtual memory.

use cachette_hal::{Access, Device, ErrorKind, Ordinal};

use crate::case::{Case, case};
use crate::failure::{Verdict, ensure, ensure_eq};
use crate::rig::{KIB, MIB, Place, Span, Stream, Subject, copy_by, refuse};

pub(super) const CASES: &[Case] = &[
    case!(
        virtual_memory::unmapping_what_is_not_mapped_is_an_invalid_value,
        [VirtualMemory],
        "Unmapping a range where nothing is mapped, or twice, fails."
    ),
    case!(
        virtual_memory::unmapping_a_part_is_an_invalid_value,
        [VirtualMemory, Transfer],
        "Unmapping a part of a mapping fails and leaves it whole."
    ),
    case!(
        virtual_memory::releasing_with_a_mapping_inside_is_an_invalid_value,
        [VirtualMemory, Transfer],
        "A reservation with a mapping inside is not released, and the mapping stays."
    ),
    case!(
        virtual_memory::released_addresses_can_be_reserved_again,
        [VirtualMemory],
        "Reserving and releasing many times never runs out of addresses."
    ),
    case!(
        virtual_memory::access_is_set_over_several_mappings_at_once,
        [VirtualMemory, Transfer],
        "One call sets the rights of a range made of adjacent mappings."
    ),
    case!(
        virtual_memory::access_to_what_is_not_mapped_is_refused,
        [VirtualMemory],
        "Setting rights where nothing is mapped fails."
    ),
    case!(
        virtual_memory::access_for_an_unknown_device_is_refused,
        [VirtualMemory, Transfer],
        "Setting rights for a device that does not exist fails, and rights stay as they were."
    ),
    case!(
        virtual_memory::access_can_be_given_to_another_device,
        [VirtualMemory, Transfer, PeerAccess],
        "A device that is named reads and writes another's mapping."
    )
    .on_devices(2),
    case!(
        virtual_memory::mapping_does_not_wait_for_a_held_stream,
        [VirtualMemory, HostCalls, Transfer],
        "A mapping is made, granted and used by one stream while another is held."
    ),
    case!(
        virtual_memory::unmapping_does_not_wait_for_a_held_stream,
        [VirtualMemory, HostCalls],
        "A mapping that no work uses is unmapped while a stream is held."
    ),
    case!(
        virtual_memory::a_chunk_moves_behind_work_in_flight,
        [VirtualMemory, HostCalls, Transfer],
        "A backing gets a second address while held work still names the first, and both see it."
    ),
    case!(
        virtual_memory::a_reservation_takes_no_memory,
        [VirtualMemory],
        "Reserving addresses leaves free memory as it was."
    ),
    case!(
        virtual_memory::a_backing_takes_memory,
        [VirtualMemory],
        "Creating a backing takes free memory, and destroying it unmapped gives it back."
    ),
    case!(
        virtual_memory::memory_stays_taken_while_mapped,
        [VirtualMemory],
        "Destroying a mapped backing gives no memory back; unmapping it then does."
    ),
];

const ATTEMPTS: u32 = 8;
/// Large enough to stand out from what other processes do.
const LARGE: u64 = 32 * MIB;

fn unmapping_what_is_not_mapped_is_an_invalid_value(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let memory = on.device().virtual_memory()?;
    let invalid = [ErrorKind::InvalidValue];
    // SAFETY: 2. nothing uses the range, for nothing is mapped there.
    let never = unsafe { memory.unmap(reservation.start(), chunk) };
    refuse(never, &invalid, "an unmap of nothing")?;
    let mapping = on.map(&reservation, 0, &backing)?;
    let at = mapping.ptr();
    mapping.close()?;
    // SAFETY: 2. nothing uses the range, for nothing is mapped there any more.
    let twice = unsafe { memory.unmap(at, chunk) };
    refuse(twice, &invalid, "a second unmap")?;
    Ok(())
}

fn unmapping_a_part_is_an_invalid_value(on: &Subject) -> Verdict {
    let minimum = on.device().virtual_memory()?.granularity().minimum;
    let bytes = 2 * on.chunk()?.max(minimum);
    let reservation = on.reservation(bytes)?;
    let backing = on.backing(bytes, cachette_hal::Sharing::Private)?;
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    let memory = on.device().virtual_memory()?;
    for at in [mapping.ptr(), mapping.ptr().add(minimum)] {
        // SAFETY: 2. nothing is queued that uses the range.
        let part = unsafe { memory.unmap(at, minimum) };
        refuse(part, &[ErrorKind::InvalidValue], "an unmap of a part")?;
    }
    on.expect_pattern(mapping.span(), 1, "the mapping")
}

fn releasing_with_a_mapping_inside_is_an_invalid_value(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    let memory = on.device().virtual_memory()?;
    // SAFETY: 1. the reservation lives; the call is documented to refuse it.
    let released = unsafe { memory.release(reservation.start(), reservation.bytes()) };
    refuse(released, &[ErrorKind::InvalidValue], "a release with a mapping inside")?;
    on.expect_pattern(mapping.span(), 1, "the mapping inside")?;
    mapping.close()?;
    Ok(reservation.close()?)
}

fn released_addresses_can_be_reserved_again(on: &Subject) -> Verdict {
    let bytes = on.device().info().total_memory.next_multiple_of(on.chunk()?);
    for _ in 0..256 {
        on.reservation(bytes)?.close()?;
    }
    Ok(())
}

fn access_is_set_over_several_mappings_at_once(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let reservation = on.chunk_reservation(5)?;
    let mut mappings = Vec::new();
    for place in 1..4 {
        mappings.push(reservation.map(place * chunk, &on.chunk_backing()?)?);
    }
    reservation.set_access(chunk, 3 * chunk, &on.read_write())?;
    on.put_pattern(Span::joined(&mappings), 1)?;
    on.expect_pattern(Span::joined(&mappings), 1, "the mappings together")
}

fn access_to_what_is_not_mapped_is_refused(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let (reservation, backing) = (on.chunk_reservation(3)?, on.chunk_backing()?);
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
    on.put_pattern(mapping.span(), 1)?;
    on.expect_pattern(mapping.span(), 1, "the mapping")
}

fn access_can_be_given_to_another_device(on: &Subject) -> Verdict {
    on.reachable_peer()?;
    let other = on.other_device()?;
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = reservation.map(0, &backing)?;
    let both = [Access::ReadWrite(on.ordinal()), Access::ReadWrite(on.other_ordinal())];
    mapping.set_access(&both)?;
    on.put_pattern(mapping.span().part(0, 64 * KIB), 1)?;
    let stream = Stream::create(other.clone())?;
    let (from, to) = (mapping.span().part(0, 64 * KIB), mapping.span().part(MIB, 64 * KIB));
    copy_by(&other, to, from, &stream)?;
    stream.synchronize()?;
    on.expect_pattern(to, 1, "what the other device copied")
}

fn mapping_does_not_wait_for_a_held_stream(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let (held, other) = (on.stream()?, on.stream()?);
    let (event, seen) = (on.event()?, on.filled(64 * KIB, 1)?);
    let gate = on.hold_warm(&held)?;
    event.record(&held)?;
    let mapping = reservation.map(0, &backing)?;
    let memory = on.device().virtual_memory()?;
    // SAFETY: 2. no right is taken away.
    unsafe { memory.set_access(mapping.ptr(), chunk, &on.read_write()) }?;
    on.fill(mapping.span(), 6, &other)?;
    on.copy(seen.span(), mapping.span().part(chunk - 64 * KIB, 64 * KIB), &other)?;
    other.synchronize()?;
    ensure!(!event.poll()?.is_done(), "the held stream was waited for");
    gate.release();
    on.expect_byte(seen.span(), 6, "what went through the new mapping")
}

fn unmapping_does_not_wait_for_a_held_stream(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    let (held, event) = (on.stream()?, on.event()?);
    let _gate = on.hold(&held)?;
    event.record(&held)?;
    let memory = on.device().virtual_memory()?;
    // SAFETY: 2. nothing was ever queued that uses the mapping.
    unsafe { memory.unmap(mapping.ptr(), mapping.bytes()) }?;
    ensure!(!event.poll()?.is_done(), "the held stream was waited for");
    Ok(())
}

fn a_chunk_moves_behind_work_in_flight(on: &Subject) -> Verdict {
    let chunk = on.chunk()?;
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let old = on.map(&reservation, 0, &backing)?;
    let (stream, event, seen) = (on.stream()?, on.event()?, on.filled(64 * KIB, 1)?);
    let gate = on.hold_warm(&stream)?;
    on.fill(old.span(), 6, &stream)?;
    event.record(&stream)?;
    let new = reservation.map(chunk, &backing)?;
    let memory = on.device().virtual_memory()?;
    // SAFETY: 2. no right is taken away.
    unsafe { memory.set_access(new.ptr(), chunk, &on.read_write()) }?;
    ensure!(!event.poll()?.is_done(), "the work in flight was waited for");
    on.copy(seen.span(), new.span().part(0, 64 * KIB), &stream)?;
    gate.release();
    stream.synchronize()?;
    on.expect_byte(seen.span(), 6, "what the old address was given, read at the new one")
}

fn a_reservation_takes_no_memory(on: &Subject) -> Verdict {
    let bytes = on.device().info().total_memory.next_multiple_of(on.chunk()?);
    let mut falls = Vec::new();
    for _ in 0..ATTEMPTS {
        let before = on.free_memory()?;
        let reservation = on.reservation(bytes)?;
        let fall = before.saturating_sub(on.free_memory()?);
        reservation.close()?;
        if fall < LARGE {
            return Ok(());
        }
        falls.push(fall);
    }
    ensure_eq!(falls, Vec::<u64>::new(), "by how much free memory fell");
    Ok(())
}

fn a_backing_takes_memory(on: &Subject) -> Verdict {
    let bytes = LARGE.next_multiple_of(on.chunk()?);
    let mut accounts = Vec::new();
    for _ in 0..ATTEMPTS {
        let before = on.free_memory()?;
        let backing = on.backing(bytes, cachette_hal::Sharing::Private)?;
        let during = on.free_memory()?;
        backing.close()?;
        let after = on.free_memory()?;
        if during + LARGE / 2 <= before && during + LARGE / 2 <= after {
            return Ok(());
        }
        accounts.push((before, during, after));
    }
    ensure!(accounts.is_empty(), "free before, during and after {bytes} bytes: {accounts:?}");
    Ok(())
}

fn memory_stays_taken_while_mapped(on: &Subject) -> Verdict {
    let bytes = LARGE.next_multiple_of(on.chunk()?);
    let reservation = on.reservation(bytes)?;
    let mut accounts = Vec::new();
    for _ in 0..ATTEMPTS {
        let backing = on.backing(bytes, cachette_hal::Sharing::Private)?;
        let mapping = on.map(&reservation, 0, &backing)?;
        let mapped = on.free_memory()?;
        backing.close()?;
        let destroyed = on.free_memory()?;
        mapping.close()?;
        let unmapped = on.free_memory()?;
        if destroyed < mapped + LARGE / 2 && destroyed + LARGE / 2 <= unmapped {
            return Ok(());
        }
        accounts.push((mapped, destroyed, unmapped));
    }
    ensure!(accounts.is_empty(), "free when mapped, destroyed and unmapped: {accounts:?}");
    Ok(())
}

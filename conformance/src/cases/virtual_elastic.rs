//! The requirements of elastic segments, whose chunks are created, released and moved.

use std::collections::HashSet;

use cachette_hal::{Device, ErrorKind, Result, Sharing};

use crate::rig::prelude::*;

cases! { virtual_memory:
    /// A stream that waits for an event sees through one alias what another wrote through the other.
    aliases_are_coherent_between_streams_behind_an_event(VirtualMemory, HostCalls, Transfer);
    /// An alias that no work uses is unmapped while held work names the other, which still runs.
    unmapping_an_alias_leaves_held_work_through_the_other(VirtualMemory, HostCalls, Transfer);
    /// Destroying a mapped backing gives no memory back; unmapping its last mapping does, and none before.
    memory_stays_taken_until_the_last_alias_is_unmapped(VirtualMemory);
    /// Addresses are reserved and released, and memory made and destroyed, while a stream is held.
    making_and_giving_back_do_not_wait_for_a_held_stream(VirtualMemory, HostCalls);
    /// Unmapping one mapping inside a range leaves those beside it, and another fills the gap.
    unmapping_one_of_several_leaves_its_neighbours(VirtualMemory, Transfer);
    /// After an unmap the same addresses take another backing: those that take turns there show their own content.
    addresses_show_the_backing_of_the_moment(VirtualMemory, Transfer);
    /// Rights set mapping by mapping and over a range add up; setting some takes none from others.
    rights_to_one_mapping_leave_its_neighbours(VirtualMemory, Transfer);
    /// Mappings of one size share a reservation, and each gets its rights alone, in any order.
    mappings_of_one_size_get_their_rights_one_by_one(VirtualMemory, Transfer);
    /// Mappings of several sizes share a reservation, and each gets its rights alone, in any order.
    mappings_of_several_sizes_get_their_rights_one_by_one(VirtualMemory, Transfer);
    /// One call grants access to adjacent mappings of several sizes that fill a reservation.
    mappings_of_several_sizes_get_their_rights_in_one_call(VirtualMemory, Transfer);
    /// Where rights are refused, the mapping is unmapped, and its addresses show the next backing alone.
    refused_rights_leave_nothing_behind(VirtualMemory, Transfer);
    /// Hundreds of reservations live side by side, and the last serves like the first.
    many_reservations_live_at_once(VirtualMemory, Transfer);
}

/// Large enough to stand out from the activity of other processes.
const LARGE: u64 = 32 * MIB;
/// The checked bytes of a chunk.
const PART: u64 = 64 * KIB;

fn aliases_are_coherent_between_streams_behind_an_event(on: &Subject) -> Verdict {
    const ROUNDS: u8 = 16;
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let one = on.map(&reservation, 0, &backing)?;
    let two = on.map(&reservation, on.chunk()?, &backing)?;
    let (first, second) = (on.stream()?, on.stream()?);
    let (event, seen) = (on.event()?, on.filled(u64::from(ROUNDS) * PART, 0xff)?);
    let gate = on.hold_warm(&first)?;
    for round in 0..ROUNDS {
        // The reader of one round is the writer of the next, so one event per round is enough.
        let ((writer, written), (reader, read)) =
            if round % 2 == 0 { ((&first, &one), (&second, &two)) } else { ((&second, &two), (&first, &one)) };
        on.fill(written.span().part(0, PART), round, writer)?;
        event.record(writer)?;
        on.stream_wait(reader, &event)?;
        on.copy(seen.span().nth(round, PART), read.span().part(0, PART), reader)?;
    }
    gate.release_and_wait(&first)?;
    second.synchronize()?;
    on.expect_parts(seen.span(), PART, 0, "what the other stream saw by the other alias")
}

fn unmapping_an_alias_leaves_held_work_through_the_other(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let idle = on.map(&reservation, 0, &backing)?;
    let used = on.map(&reservation, on.chunk()?, &backing)?;
    let (stream, event) = (on.stream()?, on.event()?);
    let gate = on.hold_warm(&stream)?;
    on.fill(used.span(), 6, &stream)?;
    event.record(&stream)?;
    let memory = on.device.virtual_memory()?;
    // SAFETY: 2. no work that uses this mapping was ever queued.
    unsafe { memory.unmap(idle.ptr(), idle.bytes()) }?;
    ensure!(!event.poll()?.is_done(), "the held stream was waited for")?;
    gate.release_and_wait(&stream)?;
    on.expect_byte(used.span(), 6, "what was written through the other alias")
}

fn memory_stays_taken_until_the_last_alias_is_unmapped(on: &Subject) -> Verdict {
    let bytes = LARGE.next_multiple_of(on.chunk()?);
    let reservation = on.reservation(2 * bytes)?;
    eventually("free with a backing and two mappings, without the backing, with one mapping, and none", || {
        let backing = on.backing(bytes, Sharing::Private)?;
        let one = on.map(&reservation, 0, &backing)?;
        let two = on.map(&reservation, bytes, &backing)?;
        let mapped = on.free_memory()?;
        backing.close()?;
        let aliased = on.free_memory()?;
        one.close()?;
        let single = on.free_memory()?;
        two.close()?;
        let none = on.free_memory()?;
        let stays_taken = aliased.max(single) < mapped + LARGE / 2;
        Ok((stays_taken && single + LARGE / 2 <= none, (mapped, aliased, single, none)))
    })
}

fn making_and_giving_back_do_not_wait_for_a_held_stream(on: &Subject) -> Verdict {
    let (reservation, mapped) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let _mapping = on.map(&reservation, 0, &mapped)?;
    let held = on.stream()?;
    let (event, gate) = on.hold_marked(&held)?;
    let (addresses, backing) = (on.chunk_reservation(4)?, on.chunk_backing()?);
    ensure!(!event.poll()?.is_done(), "making memory waited")?;
    backing.close()?;
    mapped.close()?;
    addresses.close()?;
    ensure!(!event.poll()?.is_done(), "giving memory back waited")?;
    gate.release();
    Ok(())
}

fn unmapping_one_of_several_leaves_its_neighbours(on: &Subject) -> Verdict {
    let (chunk, reservation) = (on.chunk()?, on.chunk_reservation(3)?);
    let mut mappings = map_in_a_row(on, &reservation, &[1; 3])?;
    reservation.set_access(0, 3 * chunk, &on.read_write())?;
    for (seed, mapping) in (1..).zip(&mappings) {
        on.put_pattern(mapping.span(), seed)?;
    }
    mappings.remove(1).close()?;
    on.expect_pattern(mappings[0].span(), 1, "the mapping before")?;
    on.expect_pattern(mappings[1].span(), 3, "the mapping behind")?;
    mappings.insert(1, on.map(&reservation, chunk, &on.chunk_backing()?)?);
    let all = Span::joined(&mappings);
    let stream = on.stream()?;
    // Half a chunk, the new one, and half of the next.
    on.fill(all.part(chunk / 2, 2 * chunk), 6, &stream)?;
    stream.synchronize()?;
    on.expect_byte(all.part(chunk / 2, 2 * chunk), 6, "the range with its gap filled")
}

fn addresses_show_the_backing_of_the_moment(on: &Subject) -> Verdict {
    let reservation = on.chunk_reservation(1)?;
    let backings = [on.chunk_backing()?, on.chunk_backing()?, on.chunk_backing()?];
    for (seed, backing) in (1..).zip(&backings) {
        let mapping = on.map(&reservation, 0, backing)?;
        on.put_pattern(mapping.span(), seed)?;
        mapping.close()?;
    }
    for place in [2, 0, 1, 0, 2, 1] {
        let mapping = on.map(&reservation, 0, &backings[place])?;
        let seed = place as u64 + 1;
        on.expect_pattern(mapping.span(), seed, "the backing that is mapped now")?;
        mapping.close()?;
    }
    Ok(())
}

fn rights_to_one_mapping_leave_its_neighbours(on: &Subject) -> Verdict {
    let (chunk, reservation) = (on.chunk()?, on.chunk_reservation(4)?);
    let mappings = map_in_a_row(on, &reservation, &[1; 4])?;
    reservation.set_access(chunk, 2 * chunk, &on.read_write())?;
    mappings[3].set_access(&on.read_write())?;
    mappings[0].set_access(&on.read_write())?;
    on.round_trip(Span::joined(&mappings), 1, "the mappings together")
}

/// Reserves addresses for backings of these sizes, in chunks.
fn reserve_for(on: &Subject, sizes: &[u64]) -> Verdict<Reservation> {
    Ok(on.reservation(sizes.iter().sum::<u64>() * on.chunk()?)?)
}

/// Maps backings of these sizes, in chunks, one after the other, without rights.
fn map_in_a_row<'r>(on: &Subject, reservation: &'r Reservation, sizes: &[u64]) -> Verdict<Vec<Mapping<'r>>> {
    let (chunk, mut mappings, mut offset) = (on.chunk()?, Vec::new(), 0);
    for size in sizes {
        let backing = on.backing(size * chunk, Sharing::Private)?;
        mappings.push(reservation.map(offset, &backing)?);
        offset += size * chunk;
    }
    Ok(mappings)
}

/// Maps backings of these sizes, in chunks, and checks the memory of each after its right was set.
fn grant_one_by_one(on: &Subject, sizes: &[u64]) -> Verdict {
    let reservation = reserve_for(on, sizes)?;
    let mappings = map_in_a_row(on, &reservation, sizes)?;
    // Neither in the order of their addresses nor in the reverse.
    let (even, odd): (Vec<_>, Vec<_>) = mappings.iter().enumerate().partition(|(index, _)| index % 2 == 0);
    for (index, mapping) in odd.into_iter().rev().chain(even) {
        mapping.set_access(&on.read_write())?;
        on.round_trip(mapping.span().part(0, PART), index as u64, "a mapping with its own right")?;
    }
    Ok(())
}

fn mappings_of_one_size_get_their_rights_one_by_one(on: &Subject) -> Verdict {
    grant_one_by_one(on, &[2, 2, 2, 2, 2])
}

fn mappings_of_several_sizes_get_their_rights_one_by_one(on: &Subject) -> Verdict {
    let lacked = |reason| Stop::skipped(format!("one size in a reservation: {reason}"));
    on.device.virtual_memory()?.mixes_sizes().map_err(lacked)?;
    grant_one_by_one(on, &[1, 3])?;
    grant_one_by_one(on, &[3, 1])?;
    grant_one_by_one(on, &[2, 2, 3])?;
    grant_one_by_one(on, &[1, 1, 1, 3, 2])
}

fn mappings_of_several_sizes_get_their_rights_in_one_call(on: &Subject) -> Verdict {
    let sizes = [1, 3, 2];
    let reservation = reserve_for(on, &sizes)?;
    let mappings = map_in_a_row(on, &reservation, &sizes)?;
    reservation.set_access(0, reservation.bytes(), &on.read_write())?;
    for mapping in &mappings {
        on.round_trip(mapping.span().part(0, PART), 3, "one of several mappings")?;
    }
    Ok(())
}

/// Maps a backing and sets its right, again after each refusal. A refused mapping is unmapped.
fn map_at_last<'r>(on: &Subject, reservation: &'r Reservation, offset: u64, backing: &Backing) -> Verdict<Mapping<'r>> {
    for _ in 0..8 {
        let granted = reservation.map(offset, backing).and_then(|mapping| {
            let granted = mapping.set_access(&on.read_write());
            granted.map(|()| mapping)
        });
        match granted {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
            granted => return Ok(granted?),
        }
    }
    Err(Stop::failed("the driver refused eight times"))
}

fn refused_rights_leave_nothing_behind(on: &Subject) -> Verdict {
    const ROUNDS: u64 = 32;
    let reservation = on.chunk_reservation(2)?;
    for round in 0..ROUNDS {
        let (first, second) = (on.chunk_backing()?, on.chunk_backing()?);
        map_at_last(on, &reservation, 0, &first)?.close()?;
        // The addresses get another backing, and the backing other addresses.
        let shown = map_at_last(on, &reservation, 0, &second)?;
        let moved = map_at_last(on, &reservation, on.chunk()?, &first)?;
        on.put_pattern(shown.span().part(0, PART), round)?;
        on.put_pattern(moved.span().part(0, PART), round + 1)?;
        on.expect_pattern(shown.span().part(0, PART), round, "the backing that is mapped now")?;
    }
    Ok(())
}

fn many_reservations_live_at_once(on: &Subject) -> Verdict {
    const MANY: usize = 512;
    let backing = on.chunk_backing()?;
    let live = (0..MANY).map(|_| on.chunk_reservation(1)).collect::<Result<Vec<_>, _>>()?;
    let starts: HashSet<_> = live.iter().map(Reservation::start).collect();
    ensure_eq!(starts.len(), MANY, "different addresses")?;
    for (seed, place) in [(1, 0), (2, MANY - 1), (3, MANY / 2)] {
        let mapping = on.map(&live[place], 0, &backing)?;
        on.round_trip(mapping.span().part(0, PART), seed, "one of many")?;
        mapping.close()?;
    }
    Ok(())
}

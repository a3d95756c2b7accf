//! The vendor's stream-ordered pool.

use cachette_hal::{Device, ErrorKind};

use crate::rig::prelude::*;

cases! { stream_ordered:
    /// Work queued in the stream after the allocation uses the memory.
    memory_is_usable_in_its_stream_at_once(StreamOrdered, Transfer);
    /// Memory allocated in a held stream is used by the work behind it.
    memory_is_usable_behind_held_work(StreamOrdered, Transfer, HostCalls);
    /// No two live allocations share a byte, nor one with directly allocated memory.
    live_ranges_do_not_overlap(StreamOrdered);
    /// Memory freed and allocated again in one stream holds what each owner wrote in turn.
    memory_reused_in_one_stream_is_in_order(StreamOrdered, Transfer);
    /// What is freed in a held stream is not given to another stream that runs meanwhile.
    memory_freed_in_a_held_stream_is_not_written_by_another(StreamOrdered, Transfer, HostCalls);
    /// A stream that waits for the last use may free what another allocated.
    memory_can_be_freed_in_another_stream(StreamOrdered, Transfer);
    /// Work queued before a free finds the memory as it was.
    freed_memory_stays_for_earlier_work(StreamOrdered, Transfer, HostCalls);
    /// A request for more than the device has is out of memory, one of no bytes an invalid value, and the pool stays usable.
    an_impossible_size_is_refused(StreamOrdered, Transfer);
    /// After a trim the device has the memory that the pool held unused.
    trim_gives_memory_back(StreamOrdered);
    /// A trim leaves what is allocated, and its content.
    trim_keeps_live_memory(StreamOrdered, Transfer);
}

/// Queues an allocation, its use and its free, of which `seen` gets the content.
fn use_once(on: &Subject, stream: &Stream, seen: &Memory) -> Verdict {
    let pooled = on.pooled(MIB, stream)?;
    on.fill(pooled.span(), 5, stream)?;
    on.copy(seen.span(), pooled.span(), stream)?;
    Ok(pooled.free()?)
}

fn memory_is_usable_in_its_stream_at_once(on: &Subject) -> Verdict {
    let (stream, seen) = (on.stream()?, on.filled(MIB, 0)?);
    use_once(on, &stream, &seen)?;
    stream.synchronize()?;
    on.expect_byte(seen.span(), 5, "what went through the memory")
}

fn memory_is_usable_behind_held_work(on: &Subject) -> Verdict {
    let (stream, seen) = (on.stream()?, on.filled(MIB, 0)?);
    // A pool's first allocation may wait for the device.
    on.pooled(MIB, &stream)?.free()?;
    let gate = on.hold_warm(&stream)?;
    use_once(on, &stream, &seen)?;
    gate.release_and_wait(&stream)?;
    on.expect_byte(seen.span(), 5, "what went through the memory")
}

fn live_ranges_do_not_overlap(on: &Subject) -> Verdict {
    let (one, two, direct) = (on.stream()?, on.stream()?, on.memory(MIB)?);
    let mut live = Vec::new();
    for bytes in [1, 700, 4 * KIB, MIB, 3 * MIB, 5] {
        live.push(on.pooled(bytes, &one)?);
        live.push(on.pooled(bytes, &two)?);
    }
    none_overlap(live.iter().map(Place::span).chain([direct.span()]).map(Span::range))
}

fn memory_reused_in_one_stream_is_in_order(on: &Subject) -> Verdict {
    const ROUNDS: u8 = 32;
    const BYTES: u64 = 64 * KIB;
    let (stream, seen) = (on.stream()?, on.filled(u64::from(ROUNDS) * BYTES, 0)?);
    for round in 0..ROUNDS {
        let pooled = on.pooled(BYTES, &stream)?;
        on.fill(pooled.span(), round + 1, &stream)?;
        on.copy(seen.span().nth(round, BYTES), pooled.span(), &stream)?;
        pooled.free()?;
    }
    stream.synchronize()?;
    on.expect_parts(seen.span(), BYTES, 1, "what one owner wrote")
}

fn memory_freed_in_a_held_stream_is_not_written_by_another(on: &Subject) -> Verdict {
    let (held, other) = (on.stream()?, on.stream()?);
    let (seen, event) = (on.filled(MIB, 0)?, on.event()?);
    on.pooled(MIB, &other)?.free()?;
    let pooled = on.pooled(MIB, &held)?;
    on.fill(pooled.span(), 5, &held)?;
    held.synchronize()?;
    let gate = on.hold_warm(&held)?;
    on.copy(seen.span(), pooled.span(), &held)?;
    pooled.free()?;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let meanwhile = on.pooled(MIB, &other)?;
        on.fill(meanwhile.span(), 9, &other)?;
        taken.push(meanwhile);
    }
    event.record(&other)?;
    settle();
    gate.release_and_wait(&held)?;
    event.wait()?;
    on.expect_byte(seen.span(), 5, "what the held stream still read")
}

fn memory_can_be_freed_in_another_stream(on: &Subject) -> Verdict {
    let (one, two, event) = (on.stream()?, on.stream()?, on.event()?);
    let seen = on.filled(MIB, 0)?;
    for round in 1..6 {
        let pooled = on.pooled(MIB, &one)?;
        on.fill(pooled.span(), round, &one)?;
        link(&event, &one, &two)?;
        on.copy(seen.span(), pooled.span(), &two)?;
        pooled.free_in(&two)?;
        two.synchronize()?;
        on.expect_byte(seen.span(), round, "what was read before the free")?;
    }
    Ok(())
}

fn freed_memory_stays_for_earlier_work(on: &Subject) -> Verdict {
    let (stream, seen) = (on.stream()?, on.filled(MIB, 0)?);
    let pooled = on.pooled(MIB, &stream)?;
    on.fill(pooled.span(), 5, &stream)?;
    let gate = on.hold_warm(&stream)?;
    on.copy(seen.span(), pooled.span(), &stream)?;
    pooled.free()?;
    let next = on.pooled(MIB, &stream)?;
    on.fill(next.span(), 9, &stream)?;
    next.free()?;
    settle();
    gate.release_and_wait(&stream)?;
    on.expect_byte(seen.span(), 5, "what was read before the free")
}

fn an_impossible_size_is_refused(on: &Subject) -> Verdict {
    let (stream, total) = (on.stream()?, on.device.info().total_memory);
    refuse(on.pooled(total + 2 * MIB, &stream), &[ErrorKind::OutOfMemory], "more than the device has")?;
    refuse(on.pooled(0, &stream), &[ErrorKind::InvalidValue], "a size of zero")?;
    let pooled = on.pooled(MIB, &stream)?;
    on.fill(pooled.span(), 5, &stream)?;
    stream.synchronize()?;
    on.expect_byte(pooled.span(), 5, "memory from after")
}

fn trim_gives_memory_back(on: &Subject) -> Verdict {
    const LARGE: u64 = 32 * MIB;
    let stream = on.stream()?;
    let pool = on.device.stream_ordered()?;
    eventually(&format!("{LARGE} bytes were freed and trimmed, and free memory rose"), || {
        let pooled = on.pooled(LARGE, &stream)?;
        stream.synchronize()?;
        let during = on.free_memory()?;
        pooled.free()?;
        stream.synchronize()?;
        pool.trim(0)?;
        let rise = on.free_memory()?.saturating_sub(during);
        Ok((rise >= LARGE / 2, rise))
    })
}

fn trim_keeps_live_memory(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let pooled = on.pooled(MIB, &stream)?;
    on.pooled(4 * MIB, &stream)?.free()?;
    stream.synchronize()?;
    on.put_pattern(pooled.span(), 1)?;
    let pool = on.device.stream_ordered()?;
    for keep in [64 * MIB, MIB, 0] {
        pool.trim(keep)?;
        on.expect_pattern(pooled.span(), 1, "memory that is still allocated")?;
    }
    Ok(())
}

//! Calls from any thread.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;

use cachette_hal::{CaptureMode, Device, ErrorKind, Sharing};

use crate::rig::prelude::*;

cases! { threads:
    /// Threads that allocate, write, read and free at once do not disturb each other.
    memory_is_allocated_and_freed_by_many(Transfer);
    /// Memory moves between threads: one allocates, another reads and frees.
    memory_is_freed_by_another_than_allocated_it(Transfer);
    /// Threads that each use a stream of their own get their own results.
    each_may_have_its_own_stream(Transfer);
    /// Threads that queue into one stream at once all have their work done.
    one_stream_takes_work_from_many(Transfer);
    /// An event recorded by one thread holds another until the work is done, which is then visible.
    an_event_is_recorded_by_one_and_waited_for_by_another(Transfer, HostCalls);
    /// Any number of threads may wait for one event.
    several_wait_for_one_event(HostCalls);
    /// Streams made by many threads at once have different handles. Another thread uses and destroys them, and events.
    streams_and_events_are_destroyed_by_others();
    /// Threads that reserve, map, write, read and unmap at once do not disturb each other.
    mappings_are_made_by_many(VirtualMemory, Transfer);
    /// A backing that some threads map while others unmap it elsewhere shows its content to all; who is refused a
    /// second mapping gets it after the others.
    one_backing_is_mapped_and_unmapped_by_many(VirtualMemory, Transfer);
    /// Work queued by a thread that has ended is done.
    a_thread_that_has_ended_leaves_its_work(Transfer, HostCalls);
    /// Threads that launch one graph at once, each in its own stream, all have its work done.
    one_graph_is_launched_by_many(Capture, Transfer);
    /// Threads that open the same device at once all get it.
    devices_are_opened_by_many();
}

const THREADS: u8 = 8;

/// Runs `act` on several threads at once, each with its number, and collects the results.
fn together<T: Send>(act: impl Fn(u8) -> Verdict<T> + Sync) -> Verdict<Vec<T>> {
    let start = Barrier::new(usize::from(THREADS));
    thread::scope(|scope| {
        let run = |number| {
            let (start, act) = (&start, &act);
            scope.spawn(move || {
                start.wait();
                act(number)
            })
        };
        let running: Vec<_> = (0..THREADS).map(run).collect();
        running.into_iter().map(|thread| joined(thread.join(), "a thread")?).collect()
    })
}

fn memory_is_allocated_and_freed_by_many(on: &Subject) -> Verdict {
    together(|number| {
        for round in 0..12 {
            let memory = on.memory(16 * KIB * (1 + u64::from(number)) + round)?;
            let seed = u64::from(number) << 8 | round;
            on.round_trip(memory.span(), seed, "this thread's memory")?;
            memory.close()?;
        }
        Ok(())
    })
    .map(drop)
}

fn memory_is_freed_by_another_than_allocated_it(on: &Subject) -> Verdict {
    let made = together(|number| {
        let memory = on.memory(MIB)?;
        on.put_pattern(memory.span(), u64::from(number))?;
        Ok(memory)
    })?;
    for (seed, memory) in (0..).zip(made) {
        on.expect_pattern(memory.span(), seed, "what the other thread wrote")?;
        memory.close()?;
    }
    Ok(())
}

fn each_may_have_its_own_stream(on: &Subject) -> Verdict {
    together(|number| {
        let (stream, x, y) = (on.stream()?, on.filled(64 * KIB, 0)?, on.filled(64 * KIB, 0)?);
        for round in 0..16 {
            let byte = number * 16 + round;
            on.fill(x.span(), byte, &stream)?;
            on.copy(y.span(), x.span(), &stream)?;
            stream.synchronize()?;
            on.expect_byte(y.span(), byte, "this thread's result")?;
        }
        Ok(())
    })
    .map(drop)
}

fn one_stream_takes_work_from_many(on: &Subject) -> Verdict {
    const PARTS: u64 = 32;
    let (stream, area) = (on.stream()?, on.filled(u64::from(THREADS) * PARTS * KIB, 0xff)?);
    together(|number| {
        for part in 0..PARTS {
            let at = (u64::from(number) * PARTS + part) * KIB;
            on.fill(area.span().part(at, KIB), number, &stream)?;
        }
        Ok(())
    })?;
    stream.synchronize()?;
    on.expect_parts(area.span(), PARTS * KIB, 0, "the part of one thread")
}

fn an_event_is_recorded_by_one_and_waited_for_by_another(on: &Subject) -> Verdict {
    let (area, stream, event) = (on.filled(64 * KIB, 1)?, on.stream()?, on.event()?);
    let gate = on.hold_warm(&stream)?;
    on.fill(area.span(), 7, &stream)?;
    event.record(&stream)?;
    blocks_until_released(&gate, || event.wait())?;
    on.expect_byte(area.span(), 7, "what the event marked")
}

fn several_wait_for_one_event(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let (event, gate) = on.hold_marked(&stream)?;
    let done = together(|number| {
        if number == 0 {
            settle();
            let early = event.poll()?.is_done();
            gate.release();
            ensure!(!early, "the event had passed while its stream was held")?;
        }
        event.wait()?;
        Ok(event.poll()?.is_done())
    })?;
    ensure_eq!(done, vec![true; usize::from(THREADS)], "whether it had passed for each")
}

fn streams_and_events_are_destroyed_by_others(on: &Subject) -> Verdict {
    let made = together(|_| {
        let made = |_| {
            let (stream, event) = (on.stream()?, on.event()?);
            event.record(&stream)?;
            Ok((stream, event))
        };
        (0..8).map(made).collect::<Verdict<Vec<_>>>()
    })?;
    let handles: HashSet<_> = made.iter().flatten().map(|(stream, _)| stream.get()).collect();
    ensure_eq!(handles.len(), 8 * usize::from(THREADS), "how many handles differ")?;
    for (stream, event) in made.into_iter().flatten() {
        event.wait()?;
        event.record(&stream)?;
        stream.close()?;
        event.wait()?;
        event.close()?;
    }
    Ok(())
}

fn mappings_are_made_by_many(on: &Subject) -> Verdict {
    together(|number| {
        let reservation = on.chunk_reservation(2)?;
        for round in 0..4 {
            let backing = on.chunk_backing()?;
            let mapping = on.map(&reservation, (round % 2) * on.chunk()?, &backing)?;
            let part = mapping.span().part(64 * KIB * round, 64 * KIB);
            let seed = u64::from(number) << 8 | round;
            on.round_trip(part, seed, "this thread's mapping")?;
            mapping.close()?;
        }
        Ok(())
    })
    .map(drop)
}

fn one_backing_is_mapped_and_unmapped_by_many(on: &Subject) -> Verdict {
    const ROUNDS: usize = 96;
    let memory = on.device.virtual_memory()?;
    let lacked = |reason| Stop::skipped(format!("no aliases: {reason}"));
    memory.aliases().map_err(lacked)?;
    // Exportable memory needs more of a driver than private memory.
    let sharing = match memory.shares(Sharing::FileDescriptor) {
        Ok(()) => Sharing::FileDescriptor,
        Err(_) => Sharing::Private,
    };
    let (chunk, places) = (on.chunk()?, on.chunk_reservation(THREADS.into())?);
    // Fewer than threads, so that several threads always use the same one.
    let backings = [on.backing(chunk, sharing)?, on.backing(chunk, sharing)?];
    for (seed, backing) in (1..).zip(&backings) {
        let mapping = on.map(&places, 0, backing)?;
        on.put_pattern(mapping.span().part(0, KIB), seed)?;
        mapping.close()?;
    }
    let look = |at: u64, which: usize| {
        let mapping = match on.map(&places, at, &backings[which]) {
            Ok(mapping) => mapping,
            // Some drivers do this while others copy.
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let part = mapping.span().part(0, KIB);
        on.expect_pattern(part, which as u64 + 1, "a backing that others map too")?;
        mapping.close()?;
        Ok(1)
    };
    let seen: Vec<usize> = together(|number| {
        let at = u64::from(number) * chunk;
        let round = |round| look(at, (round + usize::from(number)) % backings.len());
        (0..ROUNDS).map(round).sum()
    })?;
    let (seen, all) = (seen.iter().sum::<usize>(), ROUNDS * usize::from(THREADS));
    ensure!(seen > all / 2, "{} of {all} were refused", all - seen)?;
    for which in 0..backings.len() {
        ensure_eq!(look(0, which)?, 1, "mappings once no other thread has any")?;
    }
    Ok(())
}

fn a_thread_that_has_ended_leaves_its_work(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(u64::from(THREADS) * KIB, 0xff)?, on.stream()?);
    let gate = on.hold_warm(&stream)?;
    together(|number| Ok(on.fill(area.span().nth(number, KIB), number, &stream)?))?;
    gate.release_and_wait(&stream)?;
    on.expect_parts(area.span(), KIB, 0, "the part of a thread that has ended")
}

fn devices_are_opened_by_many(on: &Subject) -> Verdict {
    let opened = together(|_| Ok(on.backend.open(on.ordinal)?))?;
    for device in opened {
        ensure_eq!(device.info().ordinal, on.ordinal, "the ordinal opened")?;
        device.synchronize_device()?;
    }
    Ok(())
}

fn one_graph_is_launched_by_many(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(64 * KIB, 1)?, on.stream()?);
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    on.fill(area.span(), 7, &stream)?;
    let graph = capturing.end()?;
    together(|_| {
        let own = on.stream()?;
        for _ in 0..16 {
            graph.launch(&own)?;
        }
        own.synchronize()?;
        on.expect_byte(area.span(), 7, "what the graph wrote")
    })?;
    Ok(())
}

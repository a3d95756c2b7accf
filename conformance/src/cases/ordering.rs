//! Order across streams, proved by content.

use crate::rig::prelude::*;

cases! { ordering:
    /// A stream that waits for another's event reads what the other wrote before it.
    a_waiting_stream_sees_what_the_other_wrote(Transfer, HostCalls) = |on| sees_writes(on, &on.stream()?, &on.stream()?);
    /// A stream that waits for a reader's event does not overwrite what is still to be read.
    a_writer_waits_for_a_reader(Transfer, HostCalls);
    /// Order passes from stream to stream through several events.
    a_chain_of_three_streams_holds(Transfer, HostCalls);
    /// Several streams that wait for one see what it wrote.
    fan_out_holds(Transfer, HostCalls);
    /// A stream that waits for several sees what each of them wrote.
    fan_in_holds(Transfer, HostCalls);
    /// What splits into two streams and joins again is in order.
    a_diamond_holds(Transfer, HostCalls);
    /// Two streams that wait for each other in turn take turns.
    ping_pong_between_two_streams_holds(Transfer);
    /// A created stream that waits for an event of the default stream sees its work.
    a_created_stream_can_wait_for_the_default_one(Transfer, HostCalls)
        = |on| sees_writes(on, &DefaultStream, &on.stream()?);
    /// The default stream, told to wait for a created one, sees its work.
    the_default_stream_can_wait_for_a_created_one(Transfer, HostCalls)
        = |on| sees_writes(on, &on.stream()?, &DefaultStream);
    /// An event recorded again and again hands over each time what was marked then.
    one_event_can_carry_many_hand_overs(Transfer);
}

const BYTES: u64 = 64 * KIB;

fn hand_over(on: &Subject, from: &Stream, to: &Stream) -> Verdict {
    Ok(link(&on.event()?, from, to)?)
}

/// Checks that one stream reads what another wrote before an event for which it waits.
fn sees_writes(on: &Subject, writer: &impl AsStream, reader: &impl AsStream) -> Verdict {
    let (x, y, event) = (on.filled(BYTES, 1)?, on.filled(BYTES, 2)?, on.event()?);
    let gate = on.hold_warm(writer)?;
    on.fill(x.span(), 7, writer)?;
    on.record(&event, writer)?;
    on.stream_wait(reader, &event)?;
    on.copy(y.span(), x.span(), reader)?;
    settle();
    gate.release();
    on.synchronize(reader)?;
    on.expect_byte(y.span(), 7, "what the reader copied")
}

fn a_writer_waits_for_a_reader(on: &Subject) -> Verdict {
    let (x, y) = (on.filled(BYTES, 1)?, on.filled(BYTES, 2)?);
    let (reader, writer) = (on.stream()?, on.stream()?);
    let gate = on.hold_warm(&reader)?;
    on.copy(y.span(), x.span(), &reader)?;
    hand_over(on, &reader, &writer)?;
    on.fill(x.span(), 9, &writer)?;
    settle();
    gate.release_and_wait(&writer)?;
    on.expect_byte(y.span(), 1, "what the reader copied")?;
    on.expect_byte(x.span(), 9, "what the writer wrote")
}

fn a_chain_of_three_streams_holds(on: &Subject) -> Verdict {
    let (x, y, z) = (on.filled(BYTES, 1)?, on.filled(BYTES, 2)?, on.filled(BYTES, 3)?);
    let (first, second, third) = (on.stream()?, on.stream()?, on.stream()?);
    let gate = on.hold_warm(&first)?;
    on.fill(x.span(), 7, &first)?;
    hand_over(on, &first, &second)?;
    on.copy(y.span(), x.span(), &second)?;
    hand_over(on, &second, &third)?;
    on.copy(z.span(), y.span(), &third)?;
    settle();
    gate.release_and_wait(&third)?;
    on.expect_byte(z.span(), 7, "what came through the chain")
}

fn fan_out_holds(on: &Subject) -> Verdict {
    let (source, copies, writer) = (on.filled(BYTES, 1)?, on.filled(4 * BYTES, 2)?, on.stream()?);
    let readers = [on.stream()?, on.stream()?, on.stream()?, on.stream()?];
    let gate = on.hold_warm(&writer)?;
    on.fill(source.span(), 7, &writer)?;
    for (i, reader) in (0_u8..).zip(&readers) {
        hand_over(on, &writer, reader)?;
        on.copy(copies.span().nth(i, BYTES), source.span(), reader)?;
    }
    settle();
    gate.release();
    for reader in &readers {
        reader.synchronize()?;
    }
    on.expect_byte(copies.span(), 7, "what the readers copied")
}

fn fan_in_holds(on: &Subject) -> Verdict {
    let (parts, all, reader) = (on.filled(4 * BYTES, 1)?, on.filled(4 * BYTES, 2)?, on.stream()?);
    let writers = [on.stream()?, on.stream()?, on.stream()?, on.stream()?];
    // One gate holds the first writer, and the first holds the others.
    let gate = on.hold_warm(&writers[0])?;
    for writer in &writers[1..] {
        hand_over(on, &writers[0], writer)?;
    }
    for (i, writer) in (0_u8..).zip(&writers) {
        on.fill(parts.span().nth(i, BYTES), 10 + i, writer)?;
        hand_over(on, writer, &reader)?;
    }
    on.copy(all.span(), parts.span(), &reader)?;
    settle();
    gate.release_and_wait(&reader)?;
    on.expect_parts(all.span(), BYTES, 10, "what one writer wrote")
}

fn a_diamond_holds(on: &Subject) -> Verdict {
    let (source, halves, end) = (on.filled(BYTES, 1)?, on.filled(2 * BYTES, 2)?, on.filled(2 * BYTES, 3)?);
    let (top, left, right) = (on.stream()?, on.stream()?, on.stream()?);
    let gate = on.hold_warm(&top)?;
    on.fill(source.span(), 7, &top)?;
    for (i, side) in (0_u8..).zip([&left, &right]) {
        hand_over(on, &top, side)?;
        on.copy(halves.span().nth(i, BYTES), source.span(), side)?;
        hand_over(on, side, &top)?;
    }
    on.copy(end.span(), halves.span(), &top)?;
    on.fill(source.span(), 8, &top)?;
    settle();
    gate.release_and_wait(&top)?;
    on.expect_byte(end.span(), 7, "what joined again")
}

fn ping_pong_between_two_streams_holds(on: &Subject) -> Verdict {
    const ROUNDS: u8 = 24;
    let (ball, seen) = (on.filled(BYTES, 0)?, on.filled(u64::from(ROUNDS) * BYTES, 0)?);
    let (server, returner) = (on.stream()?, on.stream()?);
    for round in 0..ROUNDS {
        on.fill(ball.span(), round + 1, &server)?;
        hand_over(on, &server, &returner)?;
        on.copy(seen.span().nth(round, BYTES), ball.span(), &returner)?;
        hand_over(on, &returner, &server)?;
    }
    server.synchronize()?;
    on.expect_parts(seen.span(), BYTES, 1, "what one round handed over")
}

fn one_event_can_carry_many_hand_overs(on: &Subject) -> Verdict {
    const ROUNDS: u8 = 16;
    let (source, seen) = (on.filled(u64::from(ROUNDS) * BYTES, 0)?, on.filled(u64::from(ROUNDS) * BYTES, 0)?);
    let (writer, reader, event) = (on.stream()?, on.stream()?, on.event()?);
    for round in 0..ROUNDS {
        let part = source.span().nth(round, BYTES);
        on.fill(part, round + 1, &writer)?;
        link(&event, &writer, &reader)?;
        on.copy(seen.span().nth(round, BYTES), part, &reader)?;
    }
    reader.synchronize()?;
    on.expect_parts(seen.span(), BYTES, 1, "what one record handed over")
}

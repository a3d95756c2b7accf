//! Rows of numbers, without trailing zeros.

use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Block, BlockState, Event, StackId, TextId, TraceAction};

/// `MOST` numbers, of which at least `LEAST` are written.
///
/// The number at [`SIGNED`] is signed, and is stored as the same 64 bits.
struct Row<const LEAST: usize, const MOST: usize>([u64; MOST]);

/// The index of an event's time, which is written as microseconds since the previous event.
const SIGNED: usize = 4;

impl<const LEAST: usize, const MOST: usize> Serialize for Row<LEAST, MOST> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let last = self.0.iter().rposition(|number| *number != 0);
        let length = last.map_or(0, |last| last + 1).max(LEAST);
        let mut row = out.serialize_seq(Some(length))?;
        for (place, number) in self.0[..length].iter().enumerate() {
            if place == SIGNED {
                row.serialize_element(&number.cast_signed())?;
            } else {
                row.serialize_element(number)?;
            }
        }
        row.end()
    }
}

pub(crate) fn write_events<S: Serializer>(events: &[Event], out: S) -> Result<S::Ok, S::Error> {
    let mut before = 0;
    out.collect_seq(events.iter().map(|event| {
        let since = event.time_us.wrapping_sub(before);
        before = event.time_us;
        Row::<5, 10>([
            event.action as u64,
            event.address,
            event.bytes,
            event.stream,
            since.cast_unsigned(),
            event.stack.0.into(),
            event.pool.into(),
            event.metadata.0.into(),
            event.context.0.into(),
            event.forward_stack.0.into(),
        ])
    }))
}

/// An event as it is written; its time is that since the previous one.
#[derive(Deserialize)]
#[serde(expecting = "a row of 5 to 10 whole numbers")]
pub(crate) struct EventRow(
    u64,
    u64,
    u64,
    u64,
    i64,
    #[serde(default)] StackId,
    #[serde(default)] u32,
    #[serde(default)] TextId,
    #[serde(default)] TextId,
    #[serde(default)] StackId,
);

impl TryFrom<EventRow> for Event {
    type Error = String;

    fn try_from(row: EventRow) -> Result<Self, String> {
        let EventRow(action, address, bytes, stream, time_us, stack, pool, metadata, context, forward_stack) = row;
        let known = TraceAction::ALL.get(usize::try_from(action).unwrap_or(usize::MAX));
        let action = *known.ok_or_else(|| format!("{action} is no action"))?;
        Ok(Self { address, bytes, stream, time_us, stack, forward_stack, metadata, context, pool, action })
    }
}

/// Reads events, and adds up their times.
pub(crate) fn read_events<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Event>, D::Error> {
    let mut events = Vec::<Event>::deserialize(input)?;
    let mut time_us: i64 = 0;
    for event in &mut events {
        time_us = time_us.wrapping_add(event.time_us);
        event.time_us = time_us;
    }
    Ok(events)
}

pub(crate) fn write_blocks<S: Serializer>(blocks: &[Block], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(blocks.iter().map(|block| {
        let state = match block.state {
            BlockState::Allocated => 0,
            BlockState::Pending => 1,
            BlockState::Free => 2,
        };
        Row::<4, 6>([block.address, block.bytes, block.requested, state, block.stack.0.into(), block.label.0.into()])
    }))
}

/// A block as it is written.
#[derive(Deserialize)]
#[serde(expecting = "a row of 4 to 6 whole numbers")]
pub(crate) struct BlockRow(u64, u64, u64, u64, #[serde(default)] StackId, #[serde(default)] TextId);

impl TryFrom<BlockRow> for Block {
    type Error = String;

    fn try_from(row: BlockRow) -> Result<Self, String> {
        let BlockRow(address, bytes, requested, state, stack, label) = row;
        let state = match state {
            0 => BlockState::Allocated,
            1 => BlockState::Pending,
            2 => BlockState::Free,
            other => return Err(format!("{other} is no state of a block")),
        };
        Ok(Self { address, bytes, requested, state, stack, label })
    }
}

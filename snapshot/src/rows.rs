//! Rows of numbers, without trailing zeros.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::ChargedBudget;
use crate::{Block, BlockState, Event, StackId, TextId, TraceAction};

/// `MOST` numbers, of which at least `LEAST` are written.
///
/// The number at [`SIGNED`] is signed, and is stored as the same 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<const LEAST: usize, const MOST: usize>([u64; MOST]);

/// The index of an event's time, which is written as microseconds since the previous event.
const SIGNED: usize = 4;

pub(crate) type EventRow = Row<5, 10>;
pub(crate) type BlockRow = Row<4, 6>;

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

impl<'de, const LEAST: usize, const MOST: usize> Deserialize<'de> for Row<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(RowVisitor::<LEAST, MOST>)
    }
}

struct RowVisitor<const LEAST: usize, const MOST: usize>;

impl<'de, const LEAST: usize, const MOST: usize> Visitor<'de> for RowVisitor<LEAST, MOST> {
    type Value = Row<LEAST, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row of {LEAST} to {MOST} whole numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Self::Value, A::Error> {
        let mut numbers = [0; MOST];
        for (place, number) in numbers.iter_mut().enumerate() {
            let next =
                if place == SIGNED { row.next_element::<i64>()?.map(i64::cast_unsigned) } else { row.next_element()? };
            match next {
                Some(next) => *number = next,
                None if place < LEAST => return Err(A::Error::invalid_length(place, &self)),
                None => break,
            }
        }
        Ok(Row(numbers))
    }
}

/// Writes events as rows.
pub(crate) fn write_events<S: Serializer>(events: &[Event], out: S) -> Result<S::Ok, S::Error> {
    let mut before = 0;
    out.collect_seq(events.iter().map(|event| {
        let since = event.time_us.wrapping_sub(before);
        before = event.time_us;
        event_row(event, since)
    }))
}

fn event_row(event: &Event, since: i64) -> EventRow {
    Row([
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
}

/// An item that is read from a row.
pub(crate) trait Item: Sized {
    /// Its numbers.
    type Row: for<'de> Deserialize<'de>;
    /// The name of a list of them in an error.
    const LIST: &'static str;

    /// Reads one item; `time_us` is the time of the previous one, if there are times.
    fn of<E: Error>(row: &Self::Row, time_us: &mut i64) -> Result<Self, E>;
}

/// Reads a list of items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a, T>(&'a ChargedBudget, PhantomData<T>);

impl<'a, T: Item> Items<'a, T> {
    pub(crate) const fn new(purse: &'a ChargedBudget) -> Self {
        Self(purse, PhantomData)
    }
}

impl<'de, T: Item> DeserializeSeed<'de> for Items<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Vec<T>, D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de, T: Item> Visitor<'de> for Items<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::LIST)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Vec<T>, A::Error> {
        let (mut items, mut time_us) = (Vec::new(), 0);
        while let Some(row) = rows.next_element()? {
            self.0.add_item(&mut items, T::of(&row, &mut time_us)?)?;
        }
        Ok(items)
    }
}

impl Item for Event {
    type Row = EventRow;
    const LIST: &'static str = "a list of events";

    fn of<E: Error>(Row(row): &EventRow, time_us: &mut i64) -> Result<Self, E> {
        *time_us = time_us.wrapping_add(row[SIGNED].cast_signed());
        let actions = TraceAction::ALL.get(usize::try_from(row[0]).unwrap_or(usize::MAX));
        Ok(Self {
            action: *actions.ok_or_else(|| E::custom(format!("{} is no action", row[0])))?,
            address: row[1],
            bytes: row[2],
            stream: row[3],
            time_us: *time_us,
            stack: StackId(short(row[5])?),
            pool: short(row[6])?,
            metadata: TextId(short(row[7])?),
            context: TextId(short(row[8])?),
            forward_stack: StackId(short(row[9])?),
        })
    }
}

/// Writes blocks as rows.
pub(crate) fn write_blocks<S: Serializer>(blocks: &[Block], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(blocks.iter().map(|block| -> BlockRow {
        let state = match block.state {
            BlockState::Allocated => 0,
            BlockState::Pending => 1,
            BlockState::Free => 2,
        };
        Row([block.address, block.bytes, block.requested, state, block.stack.0.into(), block.label.0.into()])
    }))
}

impl Item for Block {
    type Row = BlockRow;
    const LIST: &'static str = "a list of blocks";

    fn of<E: Error>(Row(row): &BlockRow, _: &mut i64) -> Result<Self, E> {
        Ok(Self {
            address: row[0],
            bytes: row[1],
            requested: row[2],
            state: match row[3] {
                0 => BlockState::Allocated,
                1 => BlockState::Pending,
                2 => BlockState::Free,
                other => return Err(E::custom(format!("{other} is no state of a block"))),
            },
            stack: StackId(short(row[4])?),
            label: TextId(short(row[5])?),
        })
    }
}

/// A number of 32 bits.
fn short<E: Error>(number: u64) -> Result<u32, E> {
    u32::try_from(number).map_err(|_| E::custom(format!("{number} is too large for a place")))
}

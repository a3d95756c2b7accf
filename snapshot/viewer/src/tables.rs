//! Lists as tables: a column for each property, under the name by which the page knows it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cachette_snapshot::{Block, BlockState, Event, Segment, SegmentKind};

use crate::columns::{Column, Columns};
use crate::history::{Allocation, Step};

/// The columns of one list, by name.
pub(crate) type Table = BTreeMap<&'static str, Column>;

/// What turns lists into tables.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Where the numbers go.
    pub(crate) columns: Columns,
    /// The place of every stream in the head.
    streams: HashMap<u64, u64>,
}

impl Tables {
    /// Nothing yet; tables name streams by their place among these.
    pub(crate) fn new(streams: &BTreeSet<u64>) -> Self {
        let streams = streams.iter().copied().zip(0..).collect();
        Self { columns: Columns::default(), streams }
    }

    /// Steps, with their times after `start_us`.
    pub(crate) fn steps(&mut self, list: &[Step], start_us: i64) -> Table {
        let Self { columns, .. } = self;
        let time = |s: &Step| s.time_us.saturating_sub(start_us).cast_unsigned();
        Table::from([
            ("time", columns.differences(list.iter().map(time))),
            ("op", columns.octets(list.iter().map(|s| s.op as u8))),
            ("subject", columns.differences(list.iter().map(|s| s.subject as u64))),
        ])
    }

    pub(crate) fn allocations(&mut self, list: &[Allocation]) -> Table {
        let Self { columns, streams } = self;
        let stream = |a: &Allocation| place(streams, a.stream);
        Table::from([
            ("address", columns.words(list.iter().map(|a| a.address))),
            ("bytes", columns.numbers(list.iter().map(|a| a.bytes))),
            ("stream", columns.numbers(list.iter().map(stream))),
            ("pool", columns.numbers(list.iter().map(|a| a.pool.into()))),
            ("stack", columns.numbers(list.iter().map(|a| a.stack.0.into()))),
            ("forward", columns.numbers(list.iter().map(|a| a.forward_stack.0.into()))),
            ("metadata", columns.numbers(list.iter().map(|a| a.metadata.0.into()))),
            ("context", columns.numbers(list.iter().map(|a| a.context.0.into()))),
        ])
    }

    /// Events that are of no allocation.
    pub(crate) fn others(&mut self, list: &[&Event]) -> Table {
        let Self { columns, streams } = self;
        let stream = |e: &&Event| place(streams, e.stream);
        Table::from([
            ("address", columns.words(list.iter().map(|e| e.address))),
            ("bytes", columns.numbers(list.iter().map(|e| e.bytes))),
            ("stack", columns.numbers(list.iter().map(|e| e.stack.0.into()))),
            ("metadata", columns.numbers(list.iter().map(|e| e.metadata.0.into()))),
            ("stream", columns.numbers(list.iter().map(stream))),
            ("pool", columns.numbers(list.iter().map(|e| e.pool.into()))),
        ])
    }

    /// Segments; the lowest bit of `flags` is set for large ones, the next for elastic ones.
    pub(crate) fn segments(&mut self, list: &[&Segment]) -> Table {
        let Self { columns, streams } = self;
        let stream = |s: &&Segment| place(streams, s.stream);
        let flags = |s: &&Segment| u8::from(s.kind == SegmentKind::Large) | u8::from(s.elastic) << 1;
        Table::from([
            ("address", columns.words(list.iter().map(|s| s.address))),
            ("bytes", columns.numbers(list.iter().map(|s| s.bytes))),
            ("stream", columns.numbers(list.iter().map(stream))),
            ("pool", columns.numbers(list.iter().map(|s| s.pool.into()))),
            ("flags", columns.octets(list.iter().map(flags))),
            ("blocks", columns.numbers(list.iter().map(|s| s.blocks.len() as u64))),
        ])
    }

    /// The blocks of all segments in turn; `allocation` is one more than the number of what lies there.
    pub(crate) fn blocks(&mut self, segments: &[&Segment], places: &HashMap<u64, usize>) -> Table {
        let Self { columns, .. } = self;
        let offsets = |s: &&Segment| {
            let base = s.address;
            s.blocks.iter().map(move |b| b.address.wrapping_sub(base)).collect::<Vec<_>>()
        };
        let list: Vec<&Block> = segments.iter().flat_map(|s| &s.blocks).collect();
        let allocation = |b: &&Block| match places.get(&b.address) {
            Some(&place) if b.state != BlockState::Free => place as u64 + 1,
            _ => 0,
        };
        Table::from([
            ("offset", columns.numbers(segments.iter().flat_map(offsets))),
            ("bytes", columns.numbers(list.iter().map(|b| b.bytes))),
            ("requested", columns.numbers(list.iter().map(|b| b.requested))),
            ("state", columns.octets(list.iter().map(|b| state(b.state)))),
            ("allocation", columns.numbers(list.iter().map(allocation))),
        ])
    }
}

fn place(streams: &HashMap<u64, u64>, stream: u64) -> u64 {
    streams.get(&stream).copied().unwrap_or_default()
}

/// The number of a state; `page/decode.js` has the same.
fn state(state: BlockState) -> u8 {
    match state {
        BlockState::Free => 0,
        BlockState::Allocated => 1,
        BlockState::Pending => 2,
    }
}

//! Converts the structure of a file to a snapshot.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::setting::read_table;
use super::{FORMAT, VERSION};
use crate::budget::Budget;
use crate::{
    Annotation, Frame, OutsideMemory, PoolId, Segment, Setting, Snapshot, SnapshotProblem, StackId, Stacks, Stage,
    TextId, Texts, Trace,
};

/// The file, with its keys in any order.
#[derive(Debug, Deserialize)]
pub(super) struct Input {
    #[serde(rename = "format", deserialize_with = "format")]
    _format: (),
    #[serde(rename = "version", deserialize_with = "version")]
    _version: (),
    #[serde(default)]
    pools: Vec<PoolId>,
    #[serde(default)]
    texts: Vec<String>,
    /// The function, the file and the line.
    #[serde(default)]
    frames: Vec<(String, String, u32)>,
    #[serde(default)]
    stacks: Vec<Vec<u32>>,
    #[serde(default, deserialize_with = "read_table")]
    settings: Vec<(String, Setting)>,
    /// The name, zero for a start, the device and the time.
    #[serde(default)]
    annotations: Vec<(String, u8, u32, i64)>,
    /// Their stacks, texts and pools have the numbers of the file.
    #[serde(default)]
    segments: Vec<Segment>,
    #[serde(default)]
    traces: Vec<Trace>,
    #[serde(default)]
    outside: Vec<OutsideMemory>,
}

fn format<'de, D: Deserializer<'de>>(input: D) -> Result<(), D::Error> {
    if String::deserialize(input)? == FORMAT {
        return Ok(());
    }
    Err(D::Error::custom(format!("the format is not '{FORMAT}'")))
}

fn version<'de, D: Deserializer<'de>>(input: D) -> Result<(), D::Error> {
    let found = u64::deserialize(input)?;
    if found == VERSION {
        return Ok(());
    }
    Err(D::Error::custom(format!("version {found} is not known here, only {VERSION}; use a newer cachette")))
}

impl Input {
    pub(super) fn into_snapshot(self, budget: &Budget) -> Result<Snapshot, SnapshotProblem> {
        budget.count_items(self.items())?;
        let tables = Tables::of(self.frames, self.stacks, &self.texts, self.pools.len())?;
        let segments = self.segments.into_iter().map(|found| tables.segment(found)).collect::<Result<_, _>>()?;
        let traces = self.traces.into_iter().map(|found| tables.trace(found)).collect::<Result<_, _>>()?;
        Ok(Snapshot {
            segments,
            traces,
            annotations: self.annotations.into_iter().map(annotation).collect(),
            settings: self.settings,
            pools: self.pools,
            stacks: tables.stacks,
            texts: tables.texts,
            outside: self.outside,
        })
    }

    fn items(&self) -> usize {
        let blocks: usize = self.segments.iter().map(|segment| segment.blocks.len()).sum();
        let events: usize = self.traces.iter().map(|trace| trace.events.len()).sum();
        events + blocks + self.segments.len() + self.annotations.len() + self.outside.len()
    }
}

fn annotation((name, stage, device, time_us): (String, u8, u32, i64)) -> Annotation {
    let stage = if stage == 0 { Stage::Start } else { Stage::End };
    Annotation { name, stage, device, time_us }
}

/// The tables that the rest refers to by index, with their numbers in the snapshot. Duplicate entries of a file are
/// stored once.
#[derive(Debug)]
struct Tables {
    stacks: Stacks,
    stack_ids: Vec<StackId>,
    texts: Texts,
    text_ids: Vec<TextId>,
    pools: usize,
}

impl Tables {
    fn of(
        frames: Vec<(String, String, u32)>,
        lists: Vec<Vec<u32>>,
        words: &[String],
        pools: usize,
    ) -> Result<Self, SnapshotProblem> {
        let mut stacks = Stacks::new();
        let frames = frames.into_iter().map(|(name, file, line)| Frame { name, file, line });
        let numbers: Vec<u32> = frames.map(|frame| stacks.add_frame(frame)).collect();
        let mut stack_ids = vec![StackId::NONE];
        for list in lists {
            let list = list.into_iter().map(|number| place(&numbers, "a stack", "frame", number));
            stack_ids.push(stacks.add_numbers(list.collect::<Result<_, _>>()?));
        }
        let mut texts = Texts::new();
        let mut text_ids = vec![TextId::NONE];
        text_ids.extend(words.iter().map(|text| texts.add(text)));
        Ok(Self { stacks, stack_ids, texts, text_ids, pools })
    }

    /// Replaces the numbers of the file in a segment by those of the snapshot.
    fn segment(&self, mut segment: Segment) -> Result<Segment, SnapshotProblem> {
        const WHAT: &str = "a segment";
        for block in &mut segment.blocks {
            block.stack = place(&self.stack_ids, "a block", "stack", block.stack.0)?;
            block.label = place(&self.text_ids, "a block", "text", block.label.0)?;
        }
        segment.pool = self.pool(WHAT, segment.pool)?;
        segment.stack = place(&self.stack_ids, WHAT, "stack", segment.stack.0)?;
        Ok(segment)
    }

    /// Replaces the numbers of the file in events by those of the snapshot.
    fn trace(&self, mut trace: Trace) -> Result<Trace, SnapshotProblem> {
        const WHAT: &str = "an event";
        for event in &mut trace.events {
            event.stack = place(&self.stack_ids, WHAT, "stack", event.stack.0)?;
            event.forward_stack = place(&self.stack_ids, WHAT, "stack", event.forward_stack.0)?;
            event.metadata = place(&self.text_ids, WHAT, "text", event.metadata.0)?;
            event.context = place(&self.text_ids, WHAT, "text", event.context.0)?;
            event.pool = self.pool(WHAT, event.pool)?;
        }
        Ok(trace)
    }

    /// The first pool is the default one, and may be omitted.
    fn pool(&self, what: &'static str, number: u32) -> Result<u32, SnapshotProblem> {
        let known = number == 0 || (number as usize) < self.pools;
        known.then_some(number).ok_or(SnapshotProblem::Dangling {
            what,
            kind: "pool",
            number: number.into(),
            count: self.pools,
        })
    }
}

/// Returns the number in the snapshot for an index of the file.
fn place<T: Copy>(table: &[T], what: &'static str, kind: &'static str, number: u32) -> Result<T, SnapshotProblem> {
    let found = table.get(number as usize).copied();
    found.ok_or(SnapshotProblem::Dangling { what, kind, number: number.into(), count: table.len() })
}

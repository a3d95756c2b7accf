//! From the shape of the file to a snapshot.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::rows::{Blocks, Events};
use super::setting::Table;
use super::{FORMAT, VERSION};
use crate::{
    Annotation, Block, Event, Frame, Kind, PoolId, Segment, Setting, Snapshot, SnapshotProblem,
    StackId, Stacks, Stage, TextId, Texts, Trace,
};

/// The file, whichever order it is in.
#[derive(Debug, Deserialize)]
pub(super) struct File {
    #[serde(rename = "format", deserialize_with = "format")]
    _format: (),
    #[serde(rename = "version", deserialize_with = "version")]
    _version: (),
    #[serde(default)]
    pools: Vec<(u64, u64)>,
    #[serde(default)]
    texts: Vec<String>,
    #[serde(default)]
    frames: Vec<(String, String, u32)>,
    #[serde(default)]
    stacks: Vec<Vec<u32>>,
    #[serde(default)]
    settings: Table<Vec<(String, Setting)>>,
    #[serde(default)]
    annotations: Vec<(String, u8, u32, i64)>,
    #[serde(default)]
    segments: Vec<SegmentEntry>,
    #[serde(default)]
    traces: Vec<TraceEntry>,
}

/// A segment.
#[derive(Debug, Deserialize)]
struct SegmentEntry {
    device: u32,
    address: u64,
    bytes: u64,
    stream: u64,
    kind: KindName,
    pool: u32,
    elastic: bool,
    order: u64,
    stack: u32,
    blocks: Blocks<Vec<Block>>,
}

/// The events of a device.
#[derive(Debug, Deserialize)]
struct TraceEntry {
    device: u32,
    events: Events<Vec<Event>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Small,
    Large,
}

fn format<'de, D: Deserializer<'de>>(input: D) -> Result<(), D::Error> {
    let found = String::deserialize(input)?;
    if found == FORMAT {
        return Ok(());
    }
    Err(D::Error::custom(format!("the format is not '{FORMAT}'")))
}

fn version<'de, D: Deserializer<'de>>(input: D) -> Result<(), D::Error> {
    let found = u64::deserialize(input)?;
    if found == VERSION {
        return Ok(());
    }
    let text = format!("version {found} is not known here, only {VERSION}; use a newer cachette");
    Err(D::Error::custom(text))
}

impl File {
    pub(super) fn into_snapshot(self) -> Result<Snapshot, SnapshotProblem> {
        let tables = Tables::of(self.frames, self.stacks, &self.texts, self.pools.len())?;
        let segments = self.segments.into_iter().map(|found| tables.segment(found));
        let segments = segments.collect::<Result<_, _>>()?;
        let traces = self.traces.into_iter().map(|found| tables.trace(found));
        let traces = traces.collect::<Result<_, _>>()?;
        let annotations = self.annotations.into_iter().map(annotation);
        Ok(Snapshot {
            segments,
            traces,
            annotations: annotations.collect(),
            settings: self.settings.0,
            pools: self.pools.into_iter().map(|(a, b)| PoolId(a, b)).collect(),
            stacks: tables.stacks,
            texts: tables.texts,
        })
    }
}

fn annotation((name, stage, device, time_us): (String, u8, u32, i64)) -> Annotation {
    let stage = if stage == 0 { Stage::Start } else { Stage::End };
    Annotation {
        name,
        stage,
        device,
        time_us,
    }
}

/// What the rest names by place, and what the places are called in the snapshot: entries that a file has twice are
/// kept once.
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
        let numbers: Vec<u32> = frames
            .into_iter()
            .map(|(name, file, line)| stacks.add_frame(Frame { name, file, line }))
            .collect();
        let mut stack_ids = vec![StackId::NONE];
        for list in lists {
            let list = list.into_iter();
            let list = list.map(|number| place(&numbers, "a stack", "frame", number));
            stack_ids.push(stacks.add_numbers(list.collect::<Result<_, _>>()?));
        }
        let mut texts = Texts::new();
        let mut text_ids = vec![TextId::NONE];
        text_ids.extend(words.iter().map(|text| texts.add(text)));
        Ok(Self {
            stacks,
            stack_ids,
            texts,
            text_ids,
            pools,
        })
    }

    fn segment(&self, found: SegmentEntry) -> Result<Segment, SnapshotProblem> {
        const WHAT: &str = "a segment";
        let mut blocks = found.blocks.0;
        for block in &mut blocks {
            block.stack = place(&self.stack_ids, "a block", "stack", block.stack.0)?;
        }
        Ok(Segment {
            device: found.device,
            address: found.address,
            bytes: found.bytes,
            stream: found.stream,
            kind: match found.kind {
                KindName::Small => Kind::Small,
                KindName::Large => Kind::Large,
            },
            pool: self.pool(WHAT, found.pool)?,
            elastic: found.elastic,
            order: found.order,
            stack: place(&self.stack_ids, WHAT, "stack", found.stack)?,
            blocks,
        })
    }

    fn trace(&self, found: TraceEntry) -> Result<Trace, SnapshotProblem> {
        const WHAT: &str = "an event";
        let mut events = found.events.0;
        for event in &mut events {
            event.stack = place(&self.stack_ids, WHAT, "stack", event.stack.0)?;
            event.forward_stack = place(&self.stack_ids, WHAT, "stack", event.forward_stack.0)?;
            event.metadata = place(&self.text_ids, WHAT, "text", event.metadata.0)?;
            event.context = place(&self.text_ids, WHAT, "text", event.context.0)?;
            event.pool = self.pool(WHAT, event.pool)?;
        }
        Ok(Trace {
            device: found.device,
            events,
        })
    }

    /// The first pool is the default one, and need not be written.
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

/// What a place in the file is called in the snapshot.
fn place<T: Copy>(
    table: &[T],
    what: &'static str,
    kind: &'static str,
    number: u32,
) -> Result<T, SnapshotProblem> {
    let found = table.get(number as usize).copied();
    found.ok_or(SnapshotProblem::Dangling {
        what,
        kind,
        number: number.into(),
        count: table.len(),
    })
}

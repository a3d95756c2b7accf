//! Converts the structure of a file to a snapshot.

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error, MapAccess, Visitor};

use super::entries::{SegmentSeed, TraceSeed};
use super::seeds::{Charged, ChargedBudget, List, Plain, seed};
use super::setting::TableSeed;
use super::{FORMAT, VERSION};
use crate::budget::Budget;
use crate::{
    Annotation, Frame, PoolId, Segment, Setting, Snapshot, SnapshotProblem, StackId, Stacks, Stage, TextId, Texts,
    Trace,
};

/// The file, with its keys in any order.
#[derive(Debug, Default)]
pub(super) struct File {
    pools: Vec<(u64, u64)>,
    texts: Vec<String>,
    frames: Vec<Frame>,
    stacks: Vec<Vec<u32>>,
    settings: Vec<(String, Setting)>,
    annotations: Vec<Annotation>,
    segments: Vec<Segment>,
    traces: Vec<Trace>,
}

/// Reads a [`File`] within a budget.
#[derive(Debug)]
pub(super) struct FileSeed<'a>(pub(super) &'a ChargedBudget);

/// The keys of a file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Format,
    Version,
    Pools,
    Texts,
    Frames,
    Stacks,
    Settings,
    Annotations,
    Segments,
    Traces,
    #[serde(other)]
    Unknown,
}

seed!(FileSeed<'_> => File, deserialize_map);

impl<'de> Visitor<'de> for FileSeed<'_> {
    type Value = File;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that is a snapshot")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
        let (mut file, mut met) = (File::default(), Vec::new());
        while let Some(key) = map.next_key::<Key>()? {
            if key != Key::Unknown {
                if met.contains(&key) {
                    return Err(A::Error::custom(format!("{key:?} is there twice").to_lowercase()));
                }
                met.push(key);
            }
            self.read(key, &mut map, &mut file)?;
        }
        for (key, name) in [(Key::Format, "format"), (Key::Version, "version")] {
            if !met.contains(&key) {
                return Err(A::Error::missing_field(name));
            }
        }
        Ok(file)
    }
}

impl FileSeed<'_> {
    /// Reads the value of a key.
    fn read<'de, A: MapAccess<'de>>(&self, key: Key, map: &mut A, file: &mut File) -> Result<(), A::Error> {
        let purse = self.0;
        match key {
            Key::Format => format(&map.next_value::<String>()?)?,
            Key::Version => version(map.next_value()?)?,
            Key::Pools => {
                let each = Charged {
                    purse,
                    each: Plain::<(u64, u64)>::NEW,
                    charge: |budget: &Budget, _: &(u64, u64)| budget.charge::<PoolId>(1),
                };
                file.pools = map.next_value_seed(List { purse, each })?;
            }
            Key::Texts => {
                let each = Charged {
                    purse,
                    each: Plain::<String>::NEW,
                    charge: |budget: &Budget, text: &String| {
                        budget.charge::<u8>(text.capacity())?;
                        budget.charge::<TextId>(2)?;
                        budget.charge_text(text.len())
                    },
                };
                file.texts = map.next_value_seed(List { purse, each })?;
            }
            Key::Frames => {
                let each = Charged {
                    purse,
                    each: Plain::<FrameRow>::NEW,
                    charge: |budget: &Budget, FrameRow(frame): &FrameRow| {
                        budget.charge::<u32>(2)?;
                        budget.charge_frame(frame)
                    },
                };
                let frames = map.next_value_seed(List { purse, each })?;
                file.frames = frames.into_iter().map(|FrameRow(frame)| frame).collect();
            }
            Key::Stacks => {
                let numbers = List { purse, each: Plain::<u32>::NEW };
                let each = Charged {
                    purse,
                    each: numbers,
                    charge: |budget: &Budget, list: &Vec<u32>| {
                        budget.charge::<StackId>(2)?;
                        // A list without frames is no stack, and is not charged.
                        if list.is_empty() {
                            return Ok(());
                        }
                        budget.charge_stack(list.len())
                    },
                };
                file.stacks = map.next_value_seed(List { purse, each })?;
            }
            Key::Settings => {
                file.settings = map.next_value_seed(TableSeed::new(purse, &Cell::new(0)))?;
            }
            Key::Annotations => {
                let each = Charged {
                    purse,
                    each: Plain::<AnnotationRow>::NEW,
                    charge: |budget: &Budget, AnnotationRow(found): &AnnotationRow| {
                        budget.charge::<u8>(found.name.capacity())?;
                        budget.count_item()
                    },
                };
                let rows = map.next_value_seed(List { purse, each })?;
                file.annotations = rows.into_iter().map(|AnnotationRow(row)| row).collect();
            }
            Key::Segments => {
                let each = SegmentSeed(purse);
                file.segments = map.next_value_seed(List { purse, each })?;
            }
            Key::Traces => {
                let each = TraceSeed(purse);
                file.traces = map.next_value_seed(List { purse, each })?;
            }
            Key::Unknown => drop(map.next_value::<serde::de::IgnoredAny>()?),
        }
        Ok(())
    }
}

/// A frame as a row.
#[derive(Debug, Deserialize)]
#[serde(from = "(String, String, u32)")]
struct FrameRow(Frame);

impl From<(String, String, u32)> for FrameRow {
    fn from((name, file, line): (String, String, u32)) -> Self {
        Self(Frame { name, file, line })
    }
}

/// An annotation as a row.
#[derive(Debug, Deserialize)]
#[serde(from = "(String, u8, u32, i64)")]
struct AnnotationRow(Annotation);

impl From<(String, u8, u32, i64)> for AnnotationRow {
    fn from((name, stage, device, time_us): (String, u8, u32, i64)) -> Self {
        let stage = if stage == 0 { Stage::Start } else { Stage::End };
        Self(Annotation { name, stage, device, time_us })
    }
}

fn format<E: Error>(found: &str) -> Result<(), E> {
    if found == FORMAT {
        return Ok(());
    }
    Err(E::custom(format!("the format is not '{FORMAT}'")))
}

fn version<E: Error>(found: u64) -> Result<(), E> {
    if found == VERSION {
        return Ok(());
    }
    let text = format!("version {found} is not known here, only {VERSION}; use a newer cachette");
    Err(E::custom(text))
}

impl File {
    pub(super) fn into_snapshot(self) -> Result<Snapshot, SnapshotProblem> {
        let tables = Tables::of(self.frames, self.stacks, &self.texts, self.pools.len())?;
        let segments = self.segments.into_iter().map(|found| tables.segment(found)).collect::<Result<_, _>>()?;
        let traces = self.traces.into_iter().map(|found| tables.trace(found)).collect::<Result<_, _>>()?;
        Ok(Snapshot {
            segments,
            traces,
            annotations: self.annotations,
            settings: self.settings,
            pools: self.pools.into_iter().map(|(a, b)| PoolId(a, b)).collect(),
            stacks: tables.stacks,
            texts: tables.texts,
        })
    }
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
    fn of(frames: Vec<Frame>, lists: Vec<Vec<u32>>, words: &[String], pools: usize) -> Result<Self, SnapshotProblem> {
        let mut stacks = Stacks::new();
        let numbers: Vec<u32> = frames.into_iter().map(|frame| stacks.add_frame(frame)).collect();
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

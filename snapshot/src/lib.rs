//! The memory and the history of an allocator, as a value.
//!
//! A [`Snapshot`] is plain data and independent of devices and allocators. An allocator creates it, files store it, and
//! viewers and replays read it. Repeated data is stored once and referred to by a number: stacks in [`Stacks`], texts
//! in [`Texts`], pools in a list.
//!
//! | type | what it is |
//! |---|---|
//! | [`Segment`], [`Block`] | the memory at that moment, by address |
//! | [`OutsideMemory`] | the bytes that the program took past the allocator |
//! | [`Trace`], [`Event`] | the events of one device, oldest first |
//! | [`Stacks`], [`Frame`] | the call stacks of events and memory |
//! | [`Annotation`] | a named stage of the program |
//! | [`Setting`] | a setting of the allocator |
//!
//! There are two file formats, which [`Snapshot::read`] distinguishes. [JSON](Snapshot::write_json) keeps everything,
//! in the same tables. A [pickle](Snapshot::write_pickle) is the format of PyTorch and its viewers; its stacks are
//! shared, so it stays small too. A pickle is read as data: nothing in it is ever run. [`Limits`] restrict the
//! resources of a read. Without the feature `files` the crate has only the values.

#![forbid(unsafe_code)]

#[cfg(feature = "files")]
mod budget;
#[cfg(feature = "files")]
mod error;
mod event;
#[cfg(feature = "files")]
mod file;
#[cfg(feature = "files")]
mod json;
#[cfg(feature = "files")]
mod limits;
mod merge;
#[cfg(feature = "files")]
mod pickle;
#[cfg(feature = "files")]
mod rows;
#[cfg(feature = "files")]
mod save;
mod segment;
mod setting;
mod stacks;
mod texts;

use std::collections::BTreeMap;

#[cfg(feature = "files")]
pub use error::{Excess, PickleProblem, SnapshotError, SnapshotProblem};
pub use event::{Annotation, Event, Stage, Trace, TraceAction, UnknownAction};
#[cfg(feature = "files")]
pub use limits::Limits;
#[cfg(feature = "files")]
pub use save::{SaveError, replace_file, save};
pub use segment::{Block, BlockState, OutsideMemory, PoolId, Segment, SegmentKind};
pub use setting::Setting;
pub use stacks::{Frame, StackId, Stacks};
pub use texts::{TextId, Texts};

/// The memory and the history of an allocator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The segments, by device and address.
    pub segments: Vec<Segment>,
    /// The events of every device that has a history.
    pub traces: Vec<Trace>,
    /// The annotations of the program, oldest first.
    pub annotations: Vec<Annotation>,
    /// The settings of the allocators, by key.
    pub settings: Vec<(String, Setting)>,
    /// The pools, which segments and events refer to by index; the first is the default pool.
    pub pools: Vec<PoolId>,
    /// The stacks of blocks, segments and events.
    pub stacks: Stacks,
    /// The texts of events.
    pub texts: Texts,
    /// What programs took past the allocators, for each device where that is counted.
    pub outside: Vec<OutsideMemory>,
}

/// The parts of a snapshot that belong to one device, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceParts<'a> {
    /// Its segments.
    pub segments: Vec<&'a Segment>,
    /// Its traces.
    pub traces: Vec<&'a Trace>,
    /// Its annotations.
    pub annotations: Vec<&'a Annotation>,
    /// What was taken past its allocators.
    pub outside: OutsideMemory,
}

impl DeviceParts<'_> {
    /// Returns the events of all traces.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.traces.iter().flat_map(|trace| &trace.events)
    }
}

impl Snapshot {
    /// Returns the parts of every device that has segments, traces or memory past its allocator, by number.
    ///
    /// It takes one pass, since a file can have as many devices as segments.
    #[must_use]
    pub fn by_device(&self) -> BTreeMap<u32, DeviceParts<'_>> {
        let mut devices: BTreeMap<u32, DeviceParts<'_>> = BTreeMap::new();
        for segment in &self.segments {
            devices.entry(segment.device).or_default().segments.push(segment);
        }
        for trace in &self.traces {
            devices.entry(trace.device).or_default().traces.push(trace);
        }
        for outside in &self.outside {
            let parts = devices.entry(outside.device).or_default();
            parts.outside = parts.outside.and(*outside);
        }
        for annotation in &self.annotations {
            if let Some(parts) = devices.get_mut(&annotation.device) {
                parts.annotations.push(annotation);
            }
        }
        devices
    }
}

//! Events, in order of time.

use std::fmt;
use std::str::FromStr;

use crate::{StackId, TextId};

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TraceAction {
    /// A block was allocated.
    #[default]
    Alloc,
    /// A caller freed a block.
    FreeRequested,
    /// The block can be reused.
    FreeCompleted,
    /// A segment was obtained from the device.
    SegmentAlloc,
    /// A segment was released to the device.
    SegmentFree,
    /// Memory was mapped into a segment.
    SegmentMap,
    /// Memory was unmapped from a segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed.
    OutOfMemory,
    /// The program added metadata to memory in use.
    Annotate,
}

impl TraceAction {
    /// All actions, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::OutOfMemory,
        Self::Annotate,
    ];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::OutOfMemory => "oom",
            Self::Annotate => "annotate",
        }
    }

    /// Returns the action with a name in files.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

impl fmt::Display for TraceAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown name of an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unknown TraceEntry action: {0}")]
pub struct UnknownAction(pub String);

impl FromStr for TraceAction {
    type Err = UnknownAction;

    fn from_str(name: &str) -> Result<Self, UnknownAction> {
        Self::named(name).ok_or_else(|| UnknownAction(name.to_owned()))
    }
}

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Deserialize), serde(try_from = "crate::rows::EventRow"))]
pub struct Event {
    /// The address; for [`TraceAction::OutOfMemory`] the device's free bytes.
    pub address: u64,
    /// The requested bytes, or the size of the segment; for [`TraceAction::Snapshot`] the bytes in use.
    pub bytes: u64,
    /// The stream's handle.
    pub stream: u64,
    /// The time, in microseconds since 1970.
    pub time_us: i64,
    /// The call stack.
    pub stack: StackId,
    /// The stack of the forward pass, for work of a backward pass.
    pub forward_stack: StackId,
    /// The metadata of the thread.
    pub metadata: TextId,
    /// The compile context of the thread.
    pub context: TextId,
    /// The pool, as an index into [`Snapshot::pools`](crate::Snapshot::pools).
    pub pool: u32,
    /// The kind of event.
    pub action: TraceAction,
}

/// The events of one device, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize))]
pub struct Trace {
    /// The device.
    pub device: u32,
    /// The events.
    #[cfg_attr(feature = "files", serde(serialize_with = "crate::rows::write_events"))]
    #[cfg_attr(feature = "files", serde(deserialize_with = "crate::rows::read_events"))]
    pub events: Vec<Event>,
}

/// Whether a stage begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It begins.
    Start,
    /// It ends.
    End,
}

/// A named stage of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The name.
    pub name: String,
    /// Whether it begins or ends.
    pub stage: Stage,
    /// The current device.
    pub device: u32,
    /// The time, in microseconds since 1970.
    pub time_us: i64,
}

//! What happened, in the order it did.

use std::fmt;
use std::str::FromStr;

use crate::{StackId, TextId};

/// What happened to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TraceAction {
    /// A caller got a block.
    Alloc,
    /// A caller gave a block back.
    FreeRequested,
    /// The block is free for others.
    FreeCompleted,
    /// A segment was obtained from the device.
    SegmentAlloc,
    /// A segment goes back to the device.
    SegmentFree,
    /// Memory was mapped into a segment.
    SegmentMap,
    /// Memory left a segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed.
    OutOfMemory,
}

impl TraceAction {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::OutOfMemory,
    ];

    /// What files call it.
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
        }
    }

    /// The one that files call so.
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

/// No action has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unknown TraceEntry action: {0}")]
pub struct UnknownAction(pub String);

impl FromStr for TraceAction {
    type Err = UnknownAction;

    fn from_str(name: &str) -> Result<Self, UnknownAction> {
        Self::named(name).ok_or_else(|| UnknownAction(name.to_owned()))
    }
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where; for [`TraceAction::OutOfMemory`] the device's free bytes.
    pub address: u64,
    /// What the caller asked for, or the size of the segment; for [`TraceAction::Snapshot`] the bytes in use.
    pub bytes: u64,
    /// The stream's handle.
    pub stream: u64,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// Where in the program.
    pub stack: StackId,
    /// Where in the forward pass the work of this backward pass was made.
    pub forward_stack: StackId,
    /// What the user had set on the thread.
    pub metadata: TextId,
    /// What was being compiled on the thread.
    pub context: TextId,
    /// The pool, by its place in [`Snapshot::pools`](crate::Snapshot::pools).
    pub pool: u32,
    /// What happened.
    pub action: TraceAction,
}

/// What happened to the memory of one device, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Serialize))]
pub struct Trace {
    /// The device.
    pub device: u32,
    /// The events.
    #[cfg_attr(feature = "files", serde(serialize_with = "crate::json::write_events"))]
    pub events: Vec<Event>,
}

/// Whether something begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It begins.
    Start,
    /// It ends.
    End,
}

/// What the program said it was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// What.
    pub name: String,
    /// Whether it begins or ends.
    pub stage: Stage,
    /// The device that was current.
    pub device: u32,
    /// When, in microseconds since 1970.
    pub time_us: i64,
}

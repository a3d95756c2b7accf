//! What an allocator held and did, as a value.
//!
//! A [`Snapshot`] is plain data. It knows no device and no allocator: one makes it, files carry it, and viewers and
//! replays read it. Whatever occurs many times is kept once and named by a number: stacks in [`Stacks`], words of
//! users in [`Texts`], pools in a list.
//!
//! | type | what it is |
//! |---|---|
//! | [`Segment`], [`Block`] | what was held at the moment, by address |
//! | [`Trace`], [`Event`] | what happened to the memory of one device, oldest first |
//! | [`Stacks`], [`Frame`] | where in the program it happened |
//! | [`Annotation`] | what the program said it was doing |
//! | [`Setting`] | how the allocator was told to behave |
//!
//! Files are of two formats, and [`Snapshot::read`] tells them apart. [JSON](Snapshot::write_json) keeps everything, in
//! tables as they are here. A [pickle](Snapshot::write_pickle) is what PyTorch writes and its viewers read; its stacks
//! are shared, so it stays small too. A pickle is read as data: nothing in it is ever run. [`Limits`]
//! bound what reading either of them may take. Without the feature `files` there are values alone.

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
mod segment;
mod setting;
mod stacks;
mod texts;

#[cfg(feature = "files")]
pub use error::{Excess, PickleProblem, SnapshotError, SnapshotProblem};
pub use event::{Annotation, Event, Stage, Trace, TraceAction, UnknownAction};
#[cfg(feature = "files")]
pub use limits::Limits;
pub use segment::{Block, BlockState, PoolId, Segment, SegmentKind};
pub use setting::Setting;
pub use stacks::{Frame, StackId, Stacks};
pub use texts::{TextId, Texts};

/// What an allocator held and did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What was held, by device and address.
    pub segments: Vec<Segment>,
    /// What happened, for every device that has a history.
    pub traces: Vec<Trace>,
    /// What the program said it was doing, oldest first.
    pub annotations: Vec<Annotation>,
    /// How the allocators were told to behave, by key.
    pub settings: Vec<(String, Setting)>,
    /// The pools that segments and events name by their place here; the first is the default pool.
    pub pools: Vec<PoolId>,
    /// The stacks that blocks, segments and events name.
    pub stacks: Stacks,
    /// The words that events name.
    pub texts: Texts,
}

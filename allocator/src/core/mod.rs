//! The core: which block serves a request, without a device, a lock or a line of `unsafe`.
//!
//! Everything here is about offsets and indices. A [`Shelf`] holds the segments of one heap, the blocks that
//! tile them, and the free ones in order:
//!
//! ```text
//! segment   |  block   | block |      block       | block |     blocks tile their segment
//!           | allocated| free  |     allocated    | free  |
//!                         │                           │
//!                SmallBins: one list a size      LargeBins: one tree a range of sizes
//! ```
//!
//! Two free blocks never lie side by side, with one exception: the block freed last stays as it is until the
//! next request shows whether it can be used again just so (see [`Shelf`]).

#![forbid(unsafe_code)]

mod block;
mod copy;
mod elastic;
mod ground;
mod guard;
mod large;
mod places;
mod restore;
mod segment;
mod shelf;
mod small;
mod starts;
mod walk;

pub(crate) use block::{Block, BlockId, BlockState};
pub(crate) use copy::{SegmentCopy, ShelfCopy};
pub(crate) use elastic::Held;
pub(crate) use ground::{Chunk, ChunkId, Ground, Run, Spare};
pub(crate) use guard::Guard;
pub(crate) use segment::{Segment, SegmentId};
pub(crate) use shelf::{IdleSegment, Shelf, Split};
pub(crate) use walk::{BlockView, SegmentView};

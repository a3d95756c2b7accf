//! The core: the choice of a block for a request, without a device, a lock or `unsafe`.
//!
//! All code here works on offsets and indices. A [`HeapBlocks`] contains the segments of one heap, the blocks that tile
//! them, and the free blocks in order:
//!
//! ```text
//! segment   |  block   | block |      block       | block |     blocks tile their segment
//!           | allocated| free  |     allocated    | free  |
//!                         │                           │
//!                SmallBins: one list a size      LargeBins: one tree a range of sizes
//! ```
//!
//! Two free blocks are never adjacent, with one exception. The last-freed block is not merged until the next request,
//! which may allocate it as it is (see [`HeapBlocks`]).

#![forbid(unsafe_code)]

pub(crate) mod address_list;
pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod heap_blocks;
pub(crate) mod large_bins;
pub(crate) mod restore;
pub(crate) mod segment;
pub(crate) mod small_bins;
pub(crate) mod start_index;
pub(crate) mod table;

pub(crate) use crate::elastic::blocks::ReservedBlock;
pub(crate) use crate::elastic::chunk_map::{Chunk, ChunkId, ChunkMap, FreeRange};
pub(crate) use copy::HeapBlocksCopy;
pub(crate) use heap_blocks::{HeapBlocks, IdleSegment, ReuseGuard, Split};
pub(crate) use segment::{Segment, SegmentId};
pub(crate) use table::{Block, BlockId, BlockState};

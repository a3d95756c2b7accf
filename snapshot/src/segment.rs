//! Segments and blocks.

use crate::{StackId, TextId};

/// The id of a pool; two zeros are the default pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolId(pub u64, pub u64);

/// The requests that a segment serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum SegmentKind {
    /// Requests up to 1 MiB.
    Small,
    /// Larger requests.
    #[default]
    Large,
}

/// A segment, or a mapped part of an elastic segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize))]
pub struct Segment {
    /// The device.
    pub device: u32,
    /// The first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The stream's handle.
    pub stream: u64,
    /// The requests that it serves.
    pub kind: SegmentKind,
    /// The pool, as an index into [`Snapshot::pools`](crate::Snapshot::pools).
    pub pool: u32,
    /// Whether the segment is elastic.
    pub elastic: bool,
    /// Whether its pool sleeps, so that it has addresses and no memory of the device.
    #[cfg_attr(feature = "files", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub asleep: bool,
    /// The number of segments that the allocator had obtained before this one.
    pub order: u64,
    /// The stack of its allocation.
    pub stack: StackId,
    /// Its blocks, by address; they tile it.
    #[cfg_attr(feature = "files", serde(serialize_with = "crate::rows::write_blocks"))]
    pub blocks: Vec<Block>,
}

/// The bytes that a program took past the allocator of a device, by calls of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct OutsideMemory {
    /// The device.
    pub device: u32,
    /// Bytes of the device.
    pub bytes: u64,
    /// Bytes that the driver moves between the device and the host.
    pub managed: u64,
    /// Bytes of page-locked memory of the host.
    pub host: u64,
}

impl OutsideMemory {
    /// Both together, on the device of `other`; `u64::MAX` if a sum in a file overflows.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            device: other.device,
            bytes: self.bytes.saturating_add(other.bytes),
            managed: self.managed.saturating_add(other.managed),
            host: self.host.saturating_add(other.host),
        }
    }
}

/// The state of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// A caller uses it.
    Allocated,
    /// Its caller freed it while other streams used it.
    Pending,
    /// It is free.
    #[default]
    Free,
}

/// A block of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Deserialize), serde(try_from = "crate::rows::BlockRow"))]
pub struct Block {
    /// The first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The requested bytes; for a free block those of its last request, as in PyTorch.
    pub requested: u64,
    /// The state.
    pub state: BlockState,
    /// The stack of its allocation.
    pub stack: StackId,
    /// The label of the library that requested it, such as `torch` or `cupy`.
    pub label: TextId,
}

impl Segment {
    /// Returns the bytes of its blocks in a state; `u64::MAX` if the sum in a file overflows.
    #[must_use]
    pub fn bytes_in(&self, state: BlockState) -> u64 {
        self.blocks.iter().filter(|block| block.state == state).fold(0, |sum, block| sum.saturating_add(block.bytes))
    }

    /// Returns the requested bytes of all blocks that are not free; `u64::MAX` if the sum in a file overflows.
    #[must_use]
    pub fn requested(&self) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.state != BlockState::Free);
        blocks.fold(0, |sum, block| sum.saturating_add(block.requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_beyond_all_numbers_is_the_largest() {
        let block = |state| Block { bytes: u64::MAX - 1, requested: u64::MAX - 1, state, ..Block::default() };
        let blocks = [BlockState::Allocated, BlockState::Allocated, BlockState::Pending].map(block);
        let segment = Segment { blocks: blocks.to_vec(), ..Segment::default() };
        assert_eq!(segment.requested(), u64::MAX);
        assert_eq!(segment.bytes_in(BlockState::Allocated), u64::MAX);
        assert_eq!(segment.bytes_in(BlockState::Pending), u64::MAX - 1);
        let snapshot = crate::Snapshot { segments: vec![segment], ..crate::Snapshot::default() };
        snapshot.write_pickle(std::io::sink()).unwrap();
    }
}

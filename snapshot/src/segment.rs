//! What was held.

use crate::{StackId, TextId};

/// The name of a pool; two zeros are the default pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "files", derive(serde::Serialize))]
pub struct PoolId(pub u64, pub u64);

/// Which requests a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum SegmentKind {
    /// Those up to 1 MiB.
    Small,
    /// Those above.
    Large,
}

/// Memory of the device that was held: a segment, or the part of an elastic one that memory was mapped into.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Serialize))]
pub struct Segment {
    /// The device.
    pub device: u32,
    /// The first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The stream's handle.
    pub stream: u64,
    /// Which requests it serves.
    pub kind: SegmentKind,
    /// The pool, by its place in [`Snapshot::pools`](crate::Snapshot::pools).
    pub pool: u32,
    /// Whether memory is mapped into it as needed.
    pub elastic: bool,
    /// How many segments the allocator had obtained before this one.
    pub order: u64,
    /// Where in the program it was obtained.
    pub stack: StackId,
    /// Its blocks, by address; they tile it.
    #[cfg_attr(feature = "files", serde(serialize_with = "crate::json::write_blocks"))]
    pub blocks: Vec<Block>,
}

/// What a block was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// A caller has it.
    Allocated,
    /// Its caller gave it back while other streams used it.
    Pending,
    /// It is free.
    Free,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What its caller asked for; if it is free, what its last caller asked for, as PyTorch tells it.
    pub requested: u64,
    /// What it was doing.
    pub state: BlockState,
    /// Where in the program it was allocated.
    pub stack: StackId,
    /// The stack of libraries that asked for it, such as `torch` or `cupy`.
    pub label: TextId,
}

impl Segment {
    /// The bytes of its blocks in a state; `u64::MAX` if a file says that there are more.
    #[must_use]
    pub fn bytes_in(&self, state: BlockState) -> u64 {
        self.blocks.iter().filter(|block| block.state == state).fold(0, |sum, block| sum.saturating_add(block.bytes))
    }

    /// What callers asked for, of all that is not free; `u64::MAX` if a file says that it is more.
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
        let block = |state| Block {
            address: 0,
            bytes: u64::MAX - 1,
            requested: u64::MAX - 1,
            state,
            stack: StackId::NONE,
            label: TextId::NONE,
        };
        let segment = Segment {
            device: 0,
            address: 0,
            bytes: 0,
            stream: 0,
            kind: SegmentKind::Large,
            pool: 0,
            elastic: false,
            order: 0,
            stack: StackId::NONE,
            blocks: vec![block(BlockState::Allocated), block(BlockState::Allocated), block(BlockState::Pending)],
        };
        assert_eq!(segment.requested(), u64::MAX);
        assert_eq!(segment.bytes_in(BlockState::Allocated), u64::MAX);
        assert_eq!(segment.bytes_in(BlockState::Pending), u64::MAX - 1);
        let snapshot = crate::Snapshot { segments: vec![segment], ..crate::Snapshot::default() };
        snapshot.write_pickle(std::io::sink()).unwrap();
    }
}

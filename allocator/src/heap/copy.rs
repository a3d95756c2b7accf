//! Copying a heap: plain data under the lock, and the conversion after it.

use std::collections::HashMap;

use cachette_hal::{Device, StreamRef};

use super::Heap;
use crate::blocks::{Block, BlockId, BlockState, HeapBlocksCopy};
use crate::heap::history::Stacks;
use crate::pool::PoolId;

/// A heap at one moment.
#[derive(Debug)]
pub(crate) struct HeapCopy {
    pub(crate) blocks: HeapBlocksCopy,
    pub(crate) stacks: Stacks,
    pub(crate) stream: StreamRef,
    pub(crate) pool: PoolId,
    /// Bytes reserved from the device.
    pub(crate) reserved: u64,
    /// For every pending block, the number of the last fence that it waits for.
    pub(crate) last_points: HashMap<BlockId, u64>,
}

impl HeapCopy {
    /// Returns whether a request can allocate the block.
    pub(crate) const fn is_free(block: &Block) -> bool {
        matches!(block.state, BlockState::Free | BlockState::LastFreed | BlockState::Leaving)
    }
}

impl<D: Device> Heap<D> {
    /// Copies the heap, after the last-freed block is coalesced.
    pub(crate) fn copy(&self) -> HeapCopy {
        let mut copied = HeapBlocksCopy::default();
        let length = self.state.lock().blocks.blocks.all().len();
        // Other threads may add a few blocks before the lock is taken again.
        copied.blocks.reserve(length + length / 16 + 64);
        let mut state = self.state.lock();
        state.blocks.coalesce();
        self.flush_stats(&mut state.blocks);
        state.blocks.copy_into(&mut copied);
        let stacks = Stacks::clone(&state.stacks);
        let (reserved, last_points) = (self.reserved(), state.pending.last_points());
        drop(state);
        copied.sort();
        HeapCopy {
            blocks: copied,
            stacks,
            stream: self.stream_state.handle(),
            pool: self.pool_id(),
            reserved,
            last_points,
        }
    }
}

//! Blocks that other processes can open. They are neither moved nor reused while they are exported.

use cachette_hal::Device;

use crate::blocks::{BlockId, BlockState, Chunk};
use crate::heap::Heap;

/// The memory under an exported block.
#[derive(Debug)]
pub(crate) enum BlockMemory {
    /// A direct segment.
    Segment { base: u64, bytes: u64 },
    /// Chunks, in order of address.
    Chunks(Vec<Chunk>),
}

/// The addresses of an exported block.
#[derive(Debug)]
pub(crate) struct ExportedRange {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) memory: BlockMemory,
}

/// Why a block cannot be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportRefusal {
    /// The block is free.
    Free,
    /// The pool sleeps.
    Asleep,
}

impl<D: Device> Heap<D> {
    /// Exports an allocated block. It stays in place, and is not reused if it is freed, until
    /// [`end_export`](Self::end_export) was called as often.
    pub(crate) fn begin_export(&self, id: BlockId) -> Result<ExportedRange, ExportRefusal> {
        let mut state = self.state.lock();
        if state.redirect.asleep {
            return Err(ExportRefusal::Asleep);
        }
        let block = state.blocks.block(id);
        if block.state != BlockState::Allocated {
            return Err(ExportRefusal::Free);
        }
        let (address, bytes) = (block.address, block.bytes());
        let segment = state.blocks.segment_of(id).ok_or(ExportRefusal::Free)?;
        let memory = if self.elastic.is_some() {
            BlockMemory::Chunks(state.blocks.chunks_under(address, address + bytes))
        } else {
            BlockMemory::Segment { base: segment.base, bytes: segment.bytes }
        };
        state.blocks.block_mut(id).slow_free = true;
        state.uses.entry(id).or_default().exports += 1;
        Ok(ExportedRange { address, bytes, memory })
    }

    /// Ends one export. After the last one, a block that was freed in between is freed now.
    pub(crate) fn end_export(&self, id: BlockId) {
        let mut state = self.state.lock();
        if let Some(uses) = state.uses.get_mut(&id) {
            uses.exports -= 1;
            if uses.exports == 0 && uses.users.is_empty() {
                state.uses.remove(&id);
                state.blocks.block_mut(id).slow_free = state.history_state.is_none() && state.stacks.of(id) != 0;
            }
            return;
        }
        let Some(uses) = state.pending.exported.get_mut(&id) else { return };
        uses.exports -= 1;
        if uses.exports > 0 {
            return;
        }
        let Some(uses) = state.pending.exported.remove(&id) else { return };
        if uses.users.is_empty() {
            drop(self.become_free(state, vec![(id, Vec::new())]));
            return;
        }
        drop(state);
        // If this fails, the next request of the heap retries it.
        let _ = self.record_fences(id, uses);
    }
}

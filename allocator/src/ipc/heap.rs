//! Blocks that other processes can open. They are neither moved nor reused while they are exported.

use cachette_hal::Device;

use crate::blocks::{BlockId, BlockState, Chunk};
use crate::error::{Error, PointerProblem};
use crate::heap::Heap;
use crate::pool::PoolProblem;

/// The addresses of an exported block, and of the memory that importers map.
#[derive(Debug)]
pub(super) struct ExportedRange {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The first address of the segment or of the chunks, and their size.
    pub(super) memory: (u64, u64),
    /// In order of address; none for a direct segment.
    pub(super) chunks: Vec<Chunk>,
}

impl<D: Device> Heap<D> {
    /// Exports an allocated block. It stays in place, and is not reused if it is freed, until
    /// [`end_export`](Self::end_export) was called as often.
    pub(super) fn begin_export(&self, id: BlockId) -> Result<ExportedRange, Error> {
        let mut state = self.state.lock();
        if state.redirect.asleep {
            return Err(PoolProblem::Asleep.of(self.pool_id()));
        }
        let block = state.blocks.block(id);
        let (address, bytes) = (block.address, block.bytes());
        let is_allocated = block.state == BlockState::Allocated;
        let segment = state.blocks.segment_of(id).filter(|_| is_allocated);
        let segment = segment.ok_or(Error::InvalidPointer { address, why: PointerProblem::Free })?;
        let chunks = state.blocks.chunks_under(address, address + bytes);
        let memory = match chunks.first() {
            Some(first) => (first.at, chunks.iter().map(|chunk| chunk.bytes).sum()),
            None => (segment.base, segment.bytes),
        };
        state.blocks.block_mut(id).slow_free = true;
        state.uses.entry(id).or_default().exports += 1;
        Ok(ExportedRange { address, bytes, memory, chunks })
    }

    /// Ends one export. After the last one, a block that was freed in between is freed now.
    pub(super) fn end_export(&self, id: BlockId) {
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

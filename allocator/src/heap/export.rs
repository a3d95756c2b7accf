//! Blocks that are offered to other processes: they keep their place and serve nobody else meanwhile.

use cachette_hal::Device;

use crate::blocks::{BlockId, BlockState, Chunk};
use crate::heap::Heap;

/// Where an offered block lies.
#[derive(Debug)]
pub(crate) enum Lies {
    /// In a segment of the device's own, with its first address and its bytes.
    Segment(u64, u64),
    /// On chunks, in order of address.
    ChunkTable(Vec<Chunk>),
}

/// A block that was just offered.
#[derive(Debug)]
pub(crate) struct OfferedBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) lies: Lies,
}

/// Why a block cannot be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOffered {
    /// It was freed meanwhile.
    Free,
    /// Its pool sleeps.
    Asleep,
}

impl<D: Device> Heap<D> {
    /// Offers an allocated block: from now on it keeps its place, and if it is freed it waits, until
    /// [`end_offer`](Self::end_offer) was called as often.
    pub(crate) fn begin_offer(&self, id: BlockId) -> Result<OfferedBlock, NotOffered> {
        let mut state = self.state.lock();
        if state.away.asleep {
            return Err(NotOffered::Asleep);
        }
        let block = state.shelf.block(id);
        if block.state != BlockState::Allocated {
            return Err(NotOffered::Free);
        }
        let (address, bytes) = (block.address, block.bytes());
        let segment = state.shelf.segment_of(id).ok_or(NotOffered::Free)?;
        let lies = if self.elastic.is_some() {
            Lies::ChunkTable(state.shelf.chunks_under(address, address + bytes))
        } else {
            Lies::Segment(segment.base, segment.bytes)
        };
        state.shelf.block_mut(id).used = true;
        state.uses.entry(id).or_default().offers += 1;
        Ok(OfferedBlock { address, bytes, lies })
    }

    /// Ends one offer. If it was the last, a block that was freed meanwhile goes on as if it were freed now.
    pub(crate) fn end_offer(&self, id: BlockId) {
        let mut state = self.state.lock();
        if let Some(uses) = state.uses.get_mut(&id) {
            uses.offers -= 1;
            if uses.offers == 0 && uses.lanes.is_empty() {
                state.uses.remove(&id);
                state.shelf.block_mut(id).used = false;
            }
            return;
        }
        let Some(uses) = state.pending.offered.get_mut(&id) else {
            return;
        };
        uses.offers -= 1;
        if uses.offers > 0 {
            return;
        }
        let Some(uses) = state.pending.offered.remove(&id) else {
            return;
        };
        if uses.lanes.is_empty() {
            self.become_free(state, vec![(id, Vec::new())]);
            return;
        }
        drop(state);
        // What could not be marked now is marked when the heap is next asked.
        let _ = self.mark(id, uses);
    }

    /// The first address of a block.
    pub(crate) fn address_of(&self, id: BlockId) -> u64 {
        self.state.lock().shelf.block(id).address
    }

    /// Whether any block is offered.
    pub(crate) fn is_offering(&self) -> bool {
        let state = self.state.lock();
        let offered = state.uses.values().any(|uses| uses.offers > 0);
        offered || !state.pending.offered.is_empty()
    }

    /// Every chunk, by address.
    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        self.state.lock().shelf.chunks()
    }
}

//! Inspecting a heap: its contents, its pending blocks and its invariants.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cachette_hal::{Device, StreamRef};

use super::{Heap, HeapGuard};
use crate::blocks::{Block, BlockId, BlockState, Chunk, HeapBlocksCopy};
use crate::error::AddressProblem;
use crate::fence::Fence;
use crate::heap::history::Stacks;
use crate::label::Label;
use crate::pool::PoolId;
use crate::size::SegmentKind;
use crate::stats::{Counted, Row};

pub(crate) struct HeapCopy {
    pub(crate) blocks: HeapBlocksCopy,
    pub(crate) stacks: Stacks,
    pub(crate) stream: StreamRef,
    pub(crate) pool: PoolId,
    /// Whether the pool sleeps.
    pub(crate) asleep: bool,
    /// For every pending block, the number of the last fence that it waits for.
    pub(crate) last_points: HashMap<BlockId, u64>,
}

impl HeapCopy {
    /// Returns whether a request can allocate the block.
    pub(crate) const fn is_free(block: &Block) -> bool {
        matches!(block.state, BlockState::Free | BlockState::LastFreed | BlockState::Leaving)
    }
}

impl<D: Device> fmt::Debug for Heap<D> {
    /// Omits the tables of blocks, which are long, and takes no lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("number", &self.number)
            .field("stream", &self.stream_state.handle)
            .field("reserved", &self.reserved())
            .field("elastic", &self.is_elastic())
            .finish_non_exhaustive()
    }
}

impl<D: Device> Heap<D> {
    /// Locks the state, and coalesces the last-freed block, so that the counters match the result of a search.
    pub(crate) fn lock_coalesced(&self) -> HeapGuard<'_, D> {
        let mut state = self.state.lock();
        state.blocks.coalesce();
        self.flush_stats(&mut state.blocks);
        state
    }

    /// The last fence in each stream that any block waits for. After it, all of them are free.
    pub(crate) fn all_fences(&self) -> Vec<Arc<Fence<D>>> {
        self.state.lock().pending.last_polls().into_iter().map(|poll| poll.fence).collect()
    }

    /// Copies the heap, after the last-freed block is coalesced.
    pub(crate) fn copy(&self) -> HeapCopy {
        let mut copied = HeapBlocksCopy::default();
        let length = self.state.lock().blocks.blocks.slots.len();
        // Other threads may add a few blocks before the lock is taken again.
        copied.blocks.reserve(length + length / 16 + 64);
        let state = self.lock_coalesced();
        state.blocks.copy_into(&mut copied);
        let stacks = Stacks::clone(&state.stacks);
        let (last_points, asleep) = (state.pending.last_points(), state.asleep);
        drop(state);
        // In the order of creation.
        copied.segments.sort_unstable_by_key(|segment| segment.age);
        let (stream, pool) = (self.stream_state.handle, self.pool_id());
        HeapCopy { blocks: copied, stacks, stream, pool, asleep, last_points }
    }

    pub(crate) fn largest_free(&self) -> u64 {
        let state = self.lock_coalesced();
        let free = state.blocks.iter().filter(|(_, block)| block.state == BlockState::Free);
        free.map(|(_, block)| block.bytes()).max().unwrap_or(0)
    }

    /// The start of the block that contains an address, and its state.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, BlockState)> {
        let state = self.lock_coalesced();
        state.blocks.around(address).map(|(_, block)| (block.address, block.state))
    }

    /// Returns why `bytes` cannot be allocated at an address in a segment of the heap.
    pub(crate) fn why_not_free(&self, address: u64, bytes: u64) -> AddressProblem {
        let state = self.lock_coalesced();
        let of_kind = state.blocks.is_of_kind(address, state.policy.round(bytes));
        let around = state.blocks.around(address).filter(|_| !state.asleep);
        around.map_or(AddressProblem::Unmapped, |(_, block)| match block.state {
            BlockState::Allocated => AddressProblem::InUse { start: block.address, bytes: block.bytes() },
            BlockState::Pending => AddressProblem::Pending,
            BlockState::Free if !of_kind => AddressProblem::OtherKind,
            BlockState::Free => AddressProblem::TooShort { bytes: block.end() - address },
            _ => AddressProblem::Unmapped,
        })
    }

    /// Returns whether the heap has no allocation, no pending block and no memory from the device.
    pub(crate) fn is_empty(&self) -> bool {
        let counted = [Counted::Allocations, Counted::Pending, Counted::ReservedBytes];
        counted.iter().all(|counted| self.counters.now(Row::All, *counted) == 0) && self.slept() == 0
    }

    /// Whether any block is exported to other processes.
    pub(crate) fn is_exporting(&self) -> bool {
        let state = self.state.lock();
        let exported = state.uses.values().any(|uses| uses.exports > 0);
        exported || !state.pending.exported.is_empty()
    }

    /// The address of a block that serves a request of the default pool.
    pub(crate) fn lent(&self) -> Option<u64> {
        let state = self.state.lock();
        let mut lent = state.uses.iter().filter(|(_, uses)| uses.lent);
        lent.next().map(|(id, _)| state.blocks.blocks[*id].address)
    }

    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        self.state.lock().blocks.chunks()
    }

    /// Turns an allocated block into raw memory, which a caller can free by its address. Returns its bytes.
    pub(crate) fn make_raw(&self, id: BlockId, label: Label) -> u64 {
        let mut state = self.state.lock();
        state.blocks.make_raw(id, label);
        state.blocks.blocks[id].bytes()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let state = self.state.lock();
        state.blocks.check()?;
        for kind in [SegmentKind::Small, SegmentKind::Large] {
            let direct = state.blocks.segments().filter(|segment| segment.kind == kind && !self.is_elastic());
            let (segments, bytes) = direct.fold((0, 0), |(count, bytes), segment| (count + 1, bytes + segment.bytes));
            let mut chunks = state.blocks.chunks();
            chunks.retain(|chunk| chunk.kind == kind && self.shared.chunks.has_memory(chunk.id));
            let chunks: u64 = chunks.iter().map(|chunk| chunk.bytes).chain([self.leaving_bytes(kind)]).sum();
            let counted = |wanted: BlockState| {
                let blocks = state.blocks.iter().filter(|(_, block)| block.kind == kind && block.state == wanted);
                blocks.fold((0, 0, 0), |(count, bytes, requested), (_, block)| {
                    (count + 1, bytes + block.bytes(), requested + block.requested)
                })
            };
            let (allocated, pending) = (counted(BlockState::Allocated), counted(BlockState::Pending));
            for (what, is) in [
                (Counted::Allocations, allocated.0),
                (Counted::AllocatedBytes, allocated.1),
                (Counted::RequestedBytes, allocated.2 + pending.2),
                (Counted::Pending, pending.0),
                (Counted::PendingBytes, pending.1),
                (Counted::Segments, segments),
                (Counted::ReservedBytes, bytes + chunks),
            ] {
                let says = self.counters.now(Row::from(kind), what);
                if says != is {
                    return Err(format!("{what:?} of {kind:?} says {says} and is {is}"));
                }
            }
        }
        for counted in [Counted::Allocations, Counted::ReservedBytes, Counted::RequestedBytes] {
            let of = |row| self.counters.now(row, counted);
            if of(Row::All) != of(Row::Small) + of(Row::Large) {
                return Err(format!("{counted:?} of all is not the sum of its kinds"));
            }
        }
        Ok(())
    }
}

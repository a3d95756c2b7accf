//! Taking a block from a heap when nothing out of the ordinary has to be looked after.

use std::sync::Arc;

use cachette_hal::Device;

use crate::blocks::{Block, BlockId};
use crate::heap::{Heap, HeapGuard, HeapState};
use crate::size;
use crate::sync::lock;

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Bytes, more than zero.
    pub(crate) requested: u64,
    /// Whether the caller keeps the address alone, and not an owner.
    pub(crate) raw: bool,
}

/// A block that was taken for a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) id: BlockId,
    /// Whether guards stand before the next use; `Heap::guards_of` has them.
    pub(crate) guarded: bool,
}

impl Allocated {
    /// Writes into a block what was asked.
    #[inline(always)]
    fn note(block: &mut Block, id: BlockId, request: Request) -> Self {
        block.requested = request.requested;
        block.raw = request.raw;
        Self { address: block.address, bytes: block.bytes(), id, guarded: block.guarded }
    }
}

impl<D: Device> Heap<D> {
    /// Takes the block that was given back last, if nothing has to be looked after: this thread uses the heap
    /// alone, the very same was asked for before, no guard stands in the way and no peak is passed.
    ///
    /// Otherwise nothing has happened, and [`take`](Self::take) goes on with the lock, if it was taken.
    #[inline(always)]
    pub(crate) fn allocate_last_freed(&self, request: Request) -> Result<Allocated, Option<HeapGuard<'_, D>>> {
        let mut state = lock::enter(&self.state).ok_or(None)?;
        if !state.fast_path || state.policy.divides {
            return Err(Some(state));
        }
        let units = size::whole_units(request.requested);
        if let Some(last_freed) = state.blocks.last_freed(units)
            && !last_freed.block.guarded
            && (last_freed.block.indexed || !request.raw)
            && self.counters.allocated_below_peak(last_freed.block.kind, last_freed.block.bytes(), request.requested)
        {
            let id = last_freed.id;
            return Ok(Allocated::note(last_freed.take(), id, request));
        }
        Err(Some(state))
    }

    /// Takes the free block that fits best; `None` if there is none, and in a forked child.
    #[inline(always)]
    pub(crate) fn allocate(self: &Arc<Self>, held: Option<HeapGuard<'_, D>>, request: Request) -> Option<Allocated> {
        let mut state = match held {
            Some(state) => state,
            None => lock::share(&self.state, &self.shared.origin)?,
        };
        if !state.fast_path {
            return self.allocate_slow(state, request);
        }
        let HeapState { blocks, policy, .. } = &mut *state;
        let id = blocks.allocate(policy, policy.round(request.requested));
        if !id.is_some() {
            return None;
        }
        let (allocated, peak) = self.mark_allocated(blocks.block_mut(id), id, request);
        if request.raw {
            blocks.make_raw(id);
        }
        if blocks.is_above_watermark() {
            self.flush_stats(&mut state);
        }
        drop(state);
        if peak {
            self.shared.peaks.note(&self.counters);
        }
        Some(allocated)
    }

    /// Writes what was asked into a block and counts it; also says whether a peak may have been passed.
    #[inline(always)]
    pub(crate) fn mark_allocated(&self, block: &mut Block, id: BlockId, request: Request) -> (Allocated, bool) {
        let allocated = Allocated::note(block, id, request);
        let peak = self.counters.allocated(block.kind, allocated.bytes, request.requested);
        (allocated, peak)
    }
}

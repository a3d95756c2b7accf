//! Allocating a block on the fast path.

use std::sync::Arc;

use cachette_hal::Device;

use crate::blocks::{Block, BlockId};
use crate::heap::{FastGuard, Heap};
use crate::size;

/// A caller's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Bytes, more than zero.
    pub(crate) requested: u64,
    /// Whether the caller requests raw memory, known by its address only.
    pub(crate) raw: bool,
}

/// A block that was allocated for a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) id: BlockId,
    /// Whether the block has guards, which `Heap::guards_of` returns.
    pub(crate) guarded: bool,
}

impl Allocated {
    /// Writes a request into its block.
    #[inline(always)]
    fn note(block: &mut Block, id: BlockId, request: Request) -> Self {
        block.requested = request.requested;
        block.raw = request.raw;
        Self { address: block.address, bytes: block.bytes(), id, guarded: block.guarded }
    }
}

impl<D: Device> Heap<D> {
    /// Allocates the last-freed block on the fast path. The calling thread owns the lock's bias, the previous request
    /// had the same size, the block has no guard, and no peak is exceeded.
    ///
    /// Otherwise nothing changes, and [`allocate`](Self::allocate) continues with the lock, if it is held.
    #[inline(always)]
    pub(crate) fn allocate_last_freed(&self, request: Request) -> Result<Allocated, Option<FastGuard<'_, D>>> {
        let mut state = self.state.enter().ok_or(None)?;
        let fast_path = state.fast_path();
        let (blocks, policy) = state.blocks();
        if !fast_path || policy.divides {
            return Err(Some(state));
        }
        let units = size::whole_units(request.requested);
        if let Some(last_freed) = blocks.last_freed(units)
            && !last_freed.block.guarded
            && (last_freed.block.indexed || !request.raw)
            && self.counters.allocated_below_peak(last_freed.block.kind, last_freed.block.bytes(), request.requested)
        {
            let id = last_freed.id;
            return Ok(Allocated::note(last_freed.take(), id, request));
        }
        Err(Some(state))
    }

    /// Allocates the best fit. Returns `None` if no block fits, and in a forked child.
    #[inline(always)]
    pub(crate) fn allocate(self: &Arc<Self>, held: Option<FastGuard<'_, D>>, request: Request) -> Option<Allocated> {
        let mut state = match held {
            Some(state) => state,
            None => self.state.share(&self.shared.origin)?,
        };
        if !state.fast_path() {
            return self.allocate_slow(state.slow(), request);
        }
        let (blocks, policy) = state.blocks();
        let id = blocks.allocate(policy, policy.round(request.requested));
        if !id.is_some() {
            return None;
        }
        let (allocated, peak) = self.mark_allocated(blocks.block_mut(id), id, request);
        if request.raw {
            blocks.make_raw(id);
        }
        if blocks.is_above_watermark() {
            self.flush_stats(blocks);
        }
        drop(state);
        if peak {
            self.shared.peaks.note(&self.counters);
        }
        Some(allocated)
    }

    /// Writes a request into a block and counts it. Also returns whether a peak may be exceeded.
    #[inline(always)]
    pub(crate) fn mark_allocated(&self, block: &mut Block, id: BlockId, request: Request) -> (Allocated, bool) {
        let allocated = Allocated::note(block, id, request);
        let peak = self.counters.allocated(block.kind, allocated.bytes, request.requested);
        (allocated, peak)
    }
}

//! Giving a block back to its heap, by the block or by its address.

use std::sync::Arc;

use cachette_hal::{self as hal, Device};

use crate::blocks::{BlockId, BlockState, SegmentId};
use crate::heap::{Heap, HeapGuard};
use crate::observe::probes;
use crate::sync::lock;

/// What is left to do after a block was given back; nothing, as a rule.
///
/// A careful free may go on after its block no longer counts as allocated, and another thread may free the last block
/// meanwhile. Then the careful free holds the heap, and passes it on to be dropped when no reference to it is left.
#[derive(Debug)]
#[must_use = "the result says whether the driver failed"]
pub(crate) struct Freed<D: Device> {
    /// Boxed because it is rare: what passes through the hot path is one word.
    more: Option<Box<More<D>>>,
}

/// The driver's answer, and the heap to let go.
type More<D> = (hal::Result<()>, Arc<Heap<D>>);

impl<D: Device> Freed<D> {
    /// Nothing is left to do.
    pub(crate) const DONE: Self = Self { more: None };

    #[cold]
    pub(crate) fn careful(result: hal::Result<()>, heap: Option<Arc<Heap<D>>>) -> Self {
        Self { more: heap.map(|heap| Box::new((result, heap))) }
    }

    /// Whether the driver failed.
    ///
    /// If nothing needs the heap any more it ends here, so no reference to it may be used after.
    #[inline]
    pub(crate) fn end(self) -> hal::Result<()> {
        match self.more {
            None => Ok(()),
            Some(more) => Self::end_with(more),
        }
    }

    #[cold]
    #[inline(never)]
    #[expect(clippy::boxed_local, reason = "what the hot path hands over is one word")]
    fn end_with(more: Box<More<D>>) -> hal::Result<()> {
        let (result, heap) = *more;
        drop(heap);
        result
    }
}

/// No allocation that is known by its address alone begins at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotFreed;

impl<D: Device> Heap<D> {
    /// Gives a block back for its caller.
    ///
    /// A failure loses nothing: the block waits until its uses by other streams could be marked. In a forked child
    /// nothing happens.
    #[inline(always)]
    pub(crate) fn free(&self, id: BlockId) -> Freed<D> {
        match lock::enter(&self.state) {
            Some(state) => self.free_locked(state, id),
            None => self.free_shared(id),
        }
    }

    #[inline(never)]
    fn free_shared(&self, id: BlockId) -> Freed<D> {
        match lock::share(&self.state, &self.shared.origin) {
            Some(state) => self.free_locked(state, id),
            None => Freed::DONE,
        }
    }

    /// Gives the block back that begins at `address`; not in a forked child.
    #[inline]
    pub(crate) fn free_at(&self, segment: SegmentId, address: u64) -> Result<Freed<D>, NotFreed> {
        let state = match lock::enter(&self.state) {
            Some(state) => state,
            None => lock::share(&self.state, &self.shared.origin).ok_or(NotFreed)?,
        };
        let id = state.blocks.find_raw(segment, address).ok_or(NotFreed)?;
        let block = state.blocks.block(id);
        if block.state == BlockState::Pending || !block.raw {
            return Err(NotFreed);
        }
        Ok(self.free_locked(state, id))
    }

    #[inline(always)]
    fn free_locked(&self, mut state: HeapGuard<'_, D>, id: BlockId) -> Freed<D> {
        probes::free(|| state.blocks.block(id).address);
        if state.fast_path
            && let Some(block) = state.blocks.set_last_freed(id)
        {
            self.counters.freed(block.kind, block.bytes(), block.requested);
            return Freed::DONE;
        }
        self.free_coalesced(state, id)
    }

    #[inline(never)]
    fn free_coalesced(&self, mut state: HeapGuard<'_, D>, id: BlockId) -> Freed<D> {
        let block = state.blocks.block(id);
        if block.used || !state.fast_path {
            return self.free_slow(state, id);
        }
        self.counters.freed(block.kind, block.bytes(), block.requested);
        state.blocks.free(id);
        if state.blocks.is_above_watermark() {
            self.flush_stats(&mut state);
        }
        Freed::DONE
    }
}

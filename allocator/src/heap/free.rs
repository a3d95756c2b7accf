//! Freeing a block, by its index or by its address.

use std::sync::Arc;

use cachette_hal::{self as hal, Device};

use crate::blocks::{BlockId, BlockState, SegmentId};
use crate::heap::{FastGuard, Heap};
use crate::observe::probes;

/// The work that remains after a free; usually none.
///
/// A free on the slow path may continue after its block no longer counts as allocated. Another thread may free the last
/// block meanwhile. The slow path therefore holds the heap, and passes it on to be dropped after the last reference.
#[derive(Debug)]
#[must_use = "the result says whether the driver failed"]
pub(crate) struct Freed<D: Device> {
    /// Boxed because it is rare, so that the hot path returns one word.
    more: Option<Box<More<D>>>,
}

/// The driver's result, and the heap to drop.
type More<D> = (hal::Result<()>, Arc<Heap<D>>);

impl<D: Device> Freed<D> {
    /// No work remains.
    pub(crate) const DONE: Self = Self { more: None };

    #[cold]
    pub(crate) fn careful(result: hal::Result<()>, heap: Option<Arc<Heap<D>>>) -> Self {
        Self { more: heap.map(|heap| Box::new((result, heap))) }
    }

    /// Returns the driver's result.
    ///
    /// If nothing needs the heap any more, it is dropped here. No reference to it may be used afterwards.
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

/// The error if no raw allocation begins at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotFreed;

impl<D: Device> Heap<D> {
    /// Frees a block for its caller.
    ///
    /// After a failure the block stays pending until the fences of other streams can be recorded. In a forked child the
    /// call does nothing.
    #[inline(always)]
    pub(crate) fn free(&self, id: BlockId) -> Freed<D> {
        match self.state.enter() {
            Some(state) => self.free_locked(state, id),
            None => self.free_shared(id),
        }
    }

    #[inline(never)]
    fn free_shared(&self, id: BlockId) -> Freed<D> {
        match self.state.share(&self.shared.origin) {
            Some(state) => self.free_locked(state, id),
            None => Freed::DONE,
        }
    }

    /// Frees the block that begins at `address`, except in a forked child.
    #[inline]
    pub(crate) fn free_at(&self, segment: SegmentId, address: u64) -> Result<Freed<D>, NotFreed> {
        let mut state = match self.state.enter() {
            Some(state) => state,
            None => self.state.share(&self.shared.origin).ok_or(NotFreed)?,
        };
        let (blocks, _) = state.blocks();
        let id = blocks.find_raw(segment, address).ok_or(NotFreed)?;
        let block = blocks.block(id);
        if block.state == BlockState::Pending || !block.raw {
            return Err(NotFreed);
        }
        Ok(self.free_locked(state, id))
    }

    #[inline(always)]
    fn free_locked(&self, mut state: FastGuard<'_, D>, id: BlockId) -> Freed<D> {
        let fast_path = state.fast_path();
        let (blocks, _) = state.blocks();
        probes::free(|| blocks.block(id).address);
        if fast_path && let Some(block) = blocks.set_last_freed(id) {
            self.counters.freed(block.kind, block.bytes(), block.requested);
            return Freed::DONE;
        }
        self.free_coalesced(state, id)
    }

    #[inline(never)]
    fn free_coalesced(&self, mut state: FastGuard<'_, D>, id: BlockId) -> Freed<D> {
        let fast_path = state.fast_path();
        let (blocks, _) = state.blocks();
        let block = blocks.block(id);
        if block.slow_free || !fast_path {
            return self.free_slow(state.slow(), id);
        }
        self.counters.freed(block.kind, block.bytes(), block.requested);
        blocks.free(id);
        if blocks.is_above_watermark() {
            self.flush_stats(blocks);
        }
        Freed::DONE
    }
}

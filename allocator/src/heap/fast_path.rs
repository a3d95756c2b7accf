//! The fast path: a hit and a free that change nothing but one block.
//!
//! A hit locks with [`lock::enter`] and tests one flag. The guard that it gets cannot change what the flag depends
//! on. All other code gets a [`HeapGuard`], which derives the flag again when it is dropped. `slow_path.rs` continues
//! where the flag is false.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cachette_hal::{self as hal, Device};

use crate::blocks::{Block, BlockId, BlockState, HeapBlocks, SegmentId};
use crate::fence::Fence;
use crate::heap::{Heap, HeapState};
use crate::label::Label;
use crate::size::UNIT;
use crate::sync::lock::{self, Lock, LockGuard};

pub(crate) struct HeapLock<D: Device>(Lock<Gated<D>>);

/// A heap's state behind the flag that lets a hit pass.
pub(crate) struct Gated<D: Device> {
    /// What the state permits. A hit tests only this field.
    fast_path: FastPath,
    state: HeapState<D>,
}

/// What may be done without a look at the rest of a heap's state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastPath {
    /// Frees, and hits of the last-freed block.
    pub(super) last_freed: bool,
    /// Hits by a search. While blocks are pending, it must poll their events first.
    pub(super) search: bool,
}

impl<D: Device> HeapLock<D> {
    /// The lock of a new heap. Its first request takes the slow path.
    pub(super) fn new(state: HeapState<D>) -> Self {
        Self(Lock::new(Gated { fast_path: FastPath::default(), state }))
    }

    #[inline]
    pub(crate) fn lock(&self) -> HeapGuard<'_, D> {
        HeapGuard::unparked(self.0.lock())
    }

    /// Locks the state of a heap that may be parked, and stays so.
    pub(super) fn lock_parked(&self) -> HeapGuard<'_, D> {
        HeapGuard(self.0.lock())
    }
}

/// The locked state of a heap, for a hit or a free. This file changes nothing but blocks by it.
pub(crate) type FastGuard<'a, D> = LockGuard<'a, Gated<D>>;

/// The locked state of a heap, for any change. Its drop derives the fast-path flag.
pub(crate) struct HeapGuard<'a, D: Device>(LockGuard<'a, Gated<D>>);

impl<'a, D: Device> HeapGuard<'a, D> {
    #[inline]
    fn unparked(state: FastGuard<'a, D>) -> Self {
        let mut guard = Self(state);
        guard.unpark();
        guard
    }
}

impl<D: Device> Deref for HeapGuard<'_, D> {
    type Target = HeapState<D>;

    fn deref(&self) -> &HeapState<D> {
        &self.0.state
    }
}

impl<D: Device> DerefMut for HeapGuard<'_, D> {
    fn deref_mut(&mut self) -> &mut HeapState<D> {
        &mut self.0.state
    }
}

impl<D: Device> Drop for HeapGuard<'_, D> {
    fn drop(&mut self) {
        self.0.fast_path = self.0.state.fast_path();
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Bytes. The slow path checks that they are not zero and not too many.
    pub(crate) requested: u64,
    /// The requester: an owner, or a library that identifies the memory by its address only.
    pub(crate) label: Label,
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
    /// Returns whether the block may become raw at once. A request whose stream must wait for guards can still fail.
    /// Until then no other thread may free the block by its address, nor a restore.
    #[inline(always)]
    pub(super) const fn may_be_raw(&self, request: Request) -> bool {
        request.label.is_raw() && !self.guarded
    }
}

/// The work that remains after a free; usually none.
///
/// A free on the slow path may continue after its block no longer counts as allocated, while another thread frees the
/// last block. The slow path therefore holds the heap, and passes it on to be dropped after the last reference.
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
    pub(crate) fn after_slow_path(result: hal::Result<()>, heap: Option<Arc<Heap<D>>>) -> Self {
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

impl<D: Device> Heap<D> {
    /// Allocates the last-freed block on the fast path. The calling thread owns the lock's bias, the previous request
    /// had the same size and was no smaller, the block has no guard, and no peak is exceeded.
    ///
    /// Otherwise nothing changes, and [`allocate_search`](Self::allocate_search) continues with the lock, if it is held.
    #[inline(always)]
    pub(crate) fn allocate_fast(&self, request: Request) -> Result<Allocated, Option<FastGuard<'_, D>>> {
        let mut state = lock::enter(&self.state.0).ok_or(None)?;
        let Gated { fast_path, state: HeapState { blocks, policy, .. } } = &mut *state;
        if !fast_path.last_freed || policy.divides {
            return Err(Some(state));
        }
        // The previous request was neither empty nor too large, so this one is neither, if it passes both comparisons.
        let id = blocks.last_freed;
        if let Some(block) = blocks.blocks.get_mut(id)
            && let bytes = block.bytes()
            && id == blocks.last_found
            && request.requested <= block.requested
            && request.requested > bytes - UNIT
            && !block.guarded
            && (block.indexed || request.label == Label::OWNED)
            && self.counters.allocated_again(block.kind, bytes, request.requested)
        {
            blocks.last_freed = BlockId::NONE;
            block.state = BlockState::Allocated;
            block.requested = request.requested;
            block.label = request.label;
            return Ok(Allocated { address: block.address, bytes, id, guarded: false });
        }
        Err(Some(state))
    }

    /// Allocates the best fit. Returns `None` if no block fits, and in a forked child.
    #[inline(always)]
    pub(crate) fn allocate_search(
        self: &Arc<Self>,
        held: Option<FastGuard<'_, D>>,
        request: Request,
    ) -> Option<Allocated> {
        let mut state = match held {
            Some(state) => state,
            None => lock::share(&self.state.0, &self.shared.origin)?,
        };
        if !state.fast_path.search {
            // Taken apart, so that the hot path has these fields in registers. In memory, a load of two of them at once
            // would stall until both stores had ended.
            let Allocated { address, bytes, id, guarded } = self.allocate_slow(HeapGuard::unparked(state), request)?;
            return Some(Allocated { address, bytes, id, guarded });
        }
        let HeapState { blocks, policy, .. } = &mut state.state;
        let id = blocks.allocate(policy, policy.round(request.requested));
        if !id.is_some() {
            return None;
        }
        let (allocated, peak) = self.mark_allocated(&mut blocks.blocks[id], id, request);
        if allocated.may_be_raw(request) {
            blocks.make_raw(id, request.label);
        }
        if blocks.above_watermark {
            self.flush_stats(blocks);
        }
        drop(state);
        if peak {
            self.shared.peaks.note(&self.counters);
        }
        Some(allocated)
    }

    /// Writes a request into a block and counts it. Also returns whether a peak may be exceeded. The block has an owner,
    /// the request, until it becomes raw.
    #[inline(always)]
    pub(crate) fn mark_allocated(&self, block: &mut Block, id: BlockId, request: Request) -> (Allocated, bool) {
        block.requested = request.requested;
        block.label = Label::OWNED;
        let allocated = Allocated { address: block.address, bytes: block.bytes(), id, guarded: block.guarded };
        let peak = self.counters.allocated(block.kind, allocated.bytes, request.requested);
        (allocated, peak)
    }

    /// Frees a block for its caller.
    ///
    /// After a failure the block stays pending until the fences of other streams can be recorded. In a forked child the
    /// call does nothing.
    #[inline(always)]
    pub(crate) fn free(&self, id: BlockId) -> Freed<D> {
        match lock::enter(&self.state.0) {
            Some(state) => self.free_locked(state, id),
            None => self.free_shared(id),
        }
    }

    #[inline(never)]
    fn free_shared(&self, id: BlockId) -> Freed<D> {
        match lock::share(&self.state.0, &self.shared.origin) {
            Some(state) => self.free_locked(state, id),
            None => Freed::DONE,
        }
    }

    /// Frees the raw block at `address` on the fast path, if the last search returned it and this thread owns the lock's
    /// bias.
    ///
    /// Otherwise nothing changes, and [`free_at_locked`](Self::free_at_locked) continues with the lock, if it is held.
    #[inline(always)]
    pub(crate) fn free_last_found(&self, address: u64) -> Result<(), Option<FastGuard<'_, D>>> {
        let mut state = lock::enter(&self.state.0).ok_or(None)?;
        let Gated { fast_path, state: HeapState { blocks, .. } } = &mut *state;
        match blocks.if_raw_at(blocks.last_found, address) {
            Some(id) if fast_path.last_freed && self.set_last_freed(blocks, id) => Ok(()),
            _ => Err(Some(state)),
        }
    }

    /// Makes an allocated block the last-freed one. Returns `false`, and changes nothing, if its free takes the slow
    /// path, or if another block must be coalesced first.
    #[inline(always)]
    fn set_last_freed(&self, blocks: &mut HeapBlocks<Arc<Fence<D>>>, id: BlockId) -> bool {
        let Some(block) = blocks.blocks.get_mut(id) else { return false };
        let fast = blocks.last_freed == BlockId::NONE && !block.slow_free;
        if fast {
            block.state = BlockState::LastFreed;
            blocks.last_freed = id;
            self.counters.freed_last(block.kind, block.bytes(), block.requested);
        }
        fast
    }

    /// Frees the raw block that begins at `address`, if there is one; not in a forked child.
    #[inline(always)]
    pub(crate) fn free_at(&self, segment: SegmentId, address: u64) -> Option<Freed<D>> {
        match lock::enter(&self.state.0) {
            Some(state) => self.free_at_locked(state, segment, address),
            None => self.free_at_shared(segment, address),
        }
    }

    /// Does the same for any thread.
    #[inline(never)]
    pub(crate) fn free_at_shared(&self, segment: SegmentId, address: u64) -> Option<Freed<D>> {
        self.free_at_locked(lock::share(&self.state.0, &self.shared.origin)?, segment, address)
    }

    #[inline(always)]
    pub(crate) fn free_at_locked(&self, state: FastGuard<'_, D>, segment: SegmentId, address: u64) -> Option<Freed<D>> {
        let blocks = &state.state.blocks;
        let id = blocks.if_raw_at(blocks.hint(segment, address)?, address)?;
        Some(self.free_locked(state, id))
    }

    #[inline(always)]
    fn free_locked(&self, mut state: FastGuard<'_, D>, id: BlockId) -> Freed<D> {
        let Gated { fast_path, state: HeapState { blocks, .. } } = &mut *state;
        if fast_path.last_freed && self.set_last_freed(blocks, id) {
            return Freed::DONE;
        }
        self.free_coalesced(state, id)
    }

    #[inline(never)]
    fn free_coalesced(&self, mut state: FastGuard<'_, D>, id: BlockId) -> Freed<D> {
        let Gated { fast_path, state: HeapState { blocks, .. } } = &mut *state;
        let block = &blocks.blocks[id];
        if block.slow_free || !fast_path.last_freed {
            return self.free_slow(HeapGuard::unparked(state), id);
        }
        self.counters.freed(block.kind, block.bytes(), block.requested);
        blocks.free(id);
        if blocks.above_watermark {
            self.flush_stats(blocks);
        }
        Freed::DONE
    }
}

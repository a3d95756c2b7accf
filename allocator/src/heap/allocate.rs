//! Taking a block from a heap when nothing out of the ordinary has to be looked after.

use std::sync::Arc;

use cachette_hal::Device;

use crate::blocks::{Block, BlockId};
use crate::heap::{Guard, Heap, HeapState};
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
    fn note(block: &mut Block, id: BlockId, ask: Request) -> Self {
        block.requested = ask.requested;
        block.raw = ask.raw;
        Self { address: block.address, bytes: block.bytes(), id, guarded: block.guarded }
    }
}

impl<D: Device> Heap<D> {
    /// Takes the block that was given back last, if nothing has to be looked after: this thread uses the heap
    /// alone, the very same was asked for before, no guard stands in the way and no peak is passed.
    ///
    /// Otherwise nothing has happened, and [`take`](Self::take) goes on with the lock, if it was taken.
    #[inline(always)]
    pub(crate) fn take_again(&self, ask: Request) -> Result<Allocated, Option<Guard<'_, D>>> {
        let mut state = lock::enter(&self.state).ok_or(None)?;
        if !state.plain || state.policy.divides {
            return Err(Some(state));
        }
        let grains = size::whole_grains(ask.requested);
        if let Some(again) = state.shelf.again(grains)
            && !again.block.guarded
            && (again.block.indexed || !ask.raw)
            && self.counters.allocated_below_peak(again.block.kind, again.block.bytes(), ask.requested)
        {
            let id = again.id;
            return Ok(Allocated::note(again.take(), id, ask));
        }
        Err(Some(state))
    }

    /// Takes the free block that fits best; `None` if there is none, and in a forked child.
    #[inline(always)]
    pub(crate) fn take(self: &Arc<Self>, held: Option<Guard<'_, D>>, ask: Request) -> Option<Allocated> {
        let mut state = match held {
            Some(state) => state,
            None => lock::share(&self.state, &self.shared.origin)?,
        };
        if !state.plain {
            return self.take_slowly(state, ask);
        }
        let HeapState { shelf, policy, .. } = &mut *state;
        let id = shelf.take(policy, policy.round(ask.requested));
        if !id.is_some() {
            return None;
        }
        let (taken, peak) = self.hand_out(shelf.block_mut(id), id, ask);
        if ask.raw {
            shelf.make_raw(id);
        }
        if shelf.is_loud() {
            self.publish(&mut state);
        }
        drop(state);
        if peak {
            self.shared.ledger.note(&self.counters);
        }
        Some(taken)
    }

    /// Writes what was asked into a block and counts it; also says whether a peak may have been passed.
    #[inline(always)]
    pub(crate) fn hand_out(&self, block: &mut Block, id: BlockId, ask: Request) -> (Allocated, bool) {
        let taken = Allocated::note(block, id, ask);
        let peak = self.counters.allocated(block.kind, taken.bytes, ask.requested);
        (taken, peak)
    }
}

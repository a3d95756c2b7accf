//! Checkpoints: the saved state of a pool, to be restored later.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use super::{Pool, PoolId, PoolProblem};
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::{Heap, SavedHeap};

/// What was allocated in a pool at one moment: where, and how much.
///
/// What an owner still has when the state is brought back stays with its owner. Everything else comes back as memory
/// that is known by its address alone, as from [`Allocator::allocate_raw`](crate::Allocator::allocate_raw).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pool: PoolId,
    /// For every heap, by number, its blocks.
    heaps: Vec<(u32, Vec<SavedHeap>)>,
}

impl Checkpoint {
    /// The pool that it is of.
    #[must_use]
    pub const fn pool(&self) -> PoolId {
        self.pool
    }

    /// The addresses that were allocated, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<u64> {
        let blocks = self.heaps.iter().flat_map(|(_, blocks)| blocks);
        let mut addresses: Vec<u64> = blocks.map(|block| block.address).collect();
        addresses.sort_unstable();
        addresses
    }
}

/// What bringing back a state changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// What was allocated before, and was freed.
    pub freed: Vec<u64>,
    /// What is allocated now; an address may be in both.
    pub allocated: Vec<u64>,
}

impl<D: Device> Pool<D> {
    /// The pool's state now.
    ///
    /// It fails while a block waits for another stream.
    pub fn checkpoint(&self) -> Result<Checkpoint, Error> {
        self.inner().shared.origin.check()?;
        self.state.check_awake()?;
        // Chunks of elastic segments would otherwise serve elsewhere, and the addresses with them.
        self.state.pinned.store(true, Relaxed);
        let mut heaps = Vec::new();
        for heap in self.inner().heaps_of(self.id()) {
            heap.process_events()?;
            heaps.push((heap.number, heap.save().map_err(|why| why.of(self.id()))?));
        }
        Ok(Checkpoint { pool: self.id(), heaps })
    }

    /// Brings back a state: frees what is allocated, and allocates what was.
    ///
    /// Memory that was obtained since stays, unused. What an owner had then and has now stays as it is; an owner that
    /// came since stands in the way and must be dropped first. After an error nothing has changed.
    pub fn restore(&self, checkpoint: &Checkpoint) -> Result<Restored, Error> {
        self.inner().shared.origin.check()?;
        if checkpoint.pool != self.id() {
            return Err(PoolProblem::Foreign.of(self.id()));
        }
        self.state.check_awake()?;
        let heaps = self.inner().heaps_of(self.id());
        let saved = |heap: &Heap<D>| {
            let found = checkpoint.heaps.iter().find(|(number, _)| *number == heap.number);
            found.map_or(&[][..], |(_, blocks)| blocks)
        };
        for heap in &heaps {
            heap.process_events()?;
            heap.check_restore(saved(heap)).map_err(|why| why.of(self.id()))?;
        }
        let stream_state_of = |stream| Some(Arc::clone(&self.inner().heap_of_raw(stream).ok()?.stream_state));
        for heap in &heaps {
            // What the heap's own stream has yet to do at a borrowed place comes before the borrower's next use.
            let borrowers = saved(heap).iter().filter_map(|block| block.borrower);
            let mut borrowers = borrowers.filter_map(stream_state_of);
            borrowers.try_for_each(|stream_state| Fence::order(&heap.stream_state, &stream_state))?;
        }
        let mut restored = Restored::default();
        for heap in &heaps {
            let (freed, allocated) = heap.restore(saved(heap), stream_state_of);
            restored.freed.extend(freed);
            restored.allocated.extend(allocated);
        }
        restored.freed.sort_unstable();
        restored.allocated.sort_unstable();
        Ok(restored)
    }
}

//! Checkpoints: the saved state of a pool, to be restored later.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use super::restore::SavedBlock;
use super::{Pool, PoolId, PoolProblem};
use crate::error::Error;
use crate::heap::Heap;

/// The allocations of a pool at one moment: addresses and sizes.
///
/// After a restore, memory that still has its owner keeps it. All other memory becomes raw, as from
/// [`Allocator::allocate_raw`](crate::Allocator::allocate_raw).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pool: PoolId,
    /// The blocks of every heap, in order of heap number.
    heaps: Vec<(u32, Vec<SavedBlock>)>,
}

impl Checkpoint {
    /// The pool of the checkpoint.
    #[must_use]
    pub const fn pool(&self) -> PoolId {
        self.pool
    }

    /// The allocated addresses, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<u64> {
        let blocks = self.heaps.iter().flat_map(|(_, blocks)| blocks);
        let mut addresses: Vec<u64> = blocks.map(|block| block.address).collect();
        addresses.sort_unstable();
        addresses
    }
}

/// The changes of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The addresses that were freed.
    pub freed: Vec<u64>,
    /// The addresses that were allocated. An address may be in both lists.
    pub allocated: Vec<u64>,
}

impl<D: Device> Pool<D> {
    /// Saves the state of the pool.
    ///
    /// Fails while a block is pending.
    pub fn checkpoint(&self) -> Result<Checkpoint, Error> {
        self.state.check_awake()?;
        // Chunks of elastic segments could otherwise move, and their addresses would change.
        self.state.pinned.store(true, Relaxed);
        let mut heaps = Vec::new();
        for heap in self.inner().heaps_of(&self.state) {
            heap.process_events()?;
            heaps.push((heap.number, heap.save().map_err(|why| why.of(self.id()))?));
        }
        Ok(Checkpoint { pool: self.id(), heaps })
    }

    /// Restores a state: frees the current allocations, and allocates the saved ones.
    ///
    /// Segments obtained since then stay, unused. Memory with the same owner then and now stays unchanged. If other
    /// streams still use saved memory that is allocated now, later work of its own stream waits for them. A restore
    /// fails while memory has an owner that the checkpoint does not contain. After an error nothing has changed, unless
    /// another thread used or released memory of the checkpoint during the call; then all other memory is restored.
    pub fn restore(&self, checkpoint: &Checkpoint) -> Result<Restored, Error> {
        if checkpoint.pool != self.id() {
            return Err(PoolProblem::Foreign.of(self.id()));
        }
        // A thread that puts the pool to sleep waits for the end of the restore.
        let _awake = self.state.stay_awake()?;
        let heaps = self.inner().heaps_of(&self.state);
        // An earlier pool of the same id may have had other heaps, whose memory is gone.
        let known: HashSet<u32> = heaps.iter().map(|heap| heap.number).collect();
        let mut gone = checkpoint.heaps.iter().filter(|(number, _)| !known.contains(number));
        if let Some(block) = gone.find_map(|(_, blocks)| blocks.first()) {
            return Err(PoolProblem::Changed { address: block.address }.of(self.id()));
        }
        let saved = |heap: &Heap<D>| {
            let found = checkpoint.heaps.binary_search_by_key(&heap.number, |(number, _)| *number);
            found.map_or(&[][..], |index| &checkpoint.heaps[index].1)
        };
        for heap in &heaps {
            heap.process_events()?;
            heap.check_restore(saved(heap)).map_err(|why| why.of(self.id()))?;
        }
        for heap in &heaps {
            heap.order_restored(saved(heap))?;
        }
        let (mut restored, mut missing) = (Restored::default(), Vec::new());
        for heap in &heaps {
            missing.extend(heap.restore(saved(heap), &mut restored));
        }
        if let Some(address) = missing.into_iter().min() {
            return Err(PoolProblem::Changed { address }.of(self.id()));
        }
        restored.freed.sort_unstable();
        restored.allocated.sort_unstable();
        Ok(restored)
    }
}

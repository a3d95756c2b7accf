//! Checkpoints: the saved state of a pool, to be restored later.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use super::{Pool, PoolId, PoolProblem};
use crate::blocks::{BlockId, BlockState};
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::{Heap, HeapState, Request, StreamUses};
use crate::label::Label;
use crate::observe::callbacks::{CallbackOutcome, TraceAction};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
    label: Label,
}

impl SavedBlock {
    /// Returns whether both have owners and lie at the same addresses.
    fn is_still(&self, other: &Self) -> bool {
        let place = (self.address, self.bytes) == (other.address, other.bytes);
        !self.label.is_raw() && !other.label.is_raw() && place
    }

    /// Returns whether it has the address and the sizes of `other`.
    fn is_at(&self, other: &Self) -> bool {
        let place = |saved: &Self| (saved.address, saved.bytes, saved.requested);
        place(self) == place(other)
    }
}

impl<D: Device> Heap<D> {
    fn save(&self) -> Result<Vec<SavedBlock>, PoolProblem> {
        settled(&self.lock_coalesced())
    }

    fn check_restore(&self, saved: &[SavedBlock]) -> Result<(), PoolProblem> {
        if self.is_exporting() {
            return Err(PoolProblem::Offered);
        }
        let by_address = by_address(saved);
        for now in self.save()?.iter().filter(|now| !now.label.is_raw()) {
            // A restore must not free or reuse the memory of an owner.
            if !by_address.get(&now.address).is_some_and(|block| block.is_still(now)) {
                return Err(PoolProblem::Owned { address: now.address });
            }
        }
        let mut state = self.state.lock();
        let mut used = allocated(&state);
        used.retain(|(id, _)| state.uses.contains_key(id));
        used.sort_unstable_by_key(|(_, now)| now.address);
        let HeapState { blocks, uses, .. } = &mut *state;
        let mut walk = blocks.walk();
        for block in by_address.values() {
            if blocks.could_hold(&mut walk, block.address, block.bytes, |id| uses.contains_key(&id)) {
                continue;
            }
            // The first block in use that ends behind the start of the saved one.
            let first = used.partition_point(|(_, now)| now.address + now.bytes <= block.address);
            match used.get(first).filter(|(_, now)| now.address < block.address + block.bytes) {
                Some((_, now)) if now.is_at(block) => {}
                Some((_, now)) => return Err(PoolProblem::Waiting { address: now.address }),
                None => return Err(PoolProblem::Changed { address: block.address }),
            }
        }
        Ok(())
    }

    /// Makes the next work on saved blocks that other streams use now wait for those streams. Nothing else orders it, as
    /// these blocks are neither freed nor allocated.
    ///
    /// Fails if one of the streams is captured apart from the heap's own: no wait could order their work.
    fn order_restored(&self, saved: &[SavedBlock]) -> Result<(), Error> {
        let by_address = by_address(saved);
        let (mut users, next) = (Vec::new(), &self.stream_state);
        {
            let state = self.state.lock();
            for (id, now) in allocated(&state) {
                let stays = now.label.is_raw() && by_address.get(&now.address).is_some_and(|block| now.is_at(block));
                if let Some(uses) = state.uses.get(&id).filter(|_| stays) {
                    users.extend(uses.users.iter().map(|user| (Arc::clone(user), now.address)));
                }
            }
        }
        let mut ordered = HashSet::new();
        for (user, address) in users {
            if !ordered.insert(user.number) {
                continue;
            }
            let captures = (user.capture()?, next.capture()?);
            if captures.0.is_some() && captures.0 != captures.1 {
                return Err(PoolProblem::Waiting { address }.of(self.pool_id()));
            }
            if captures.0 == captures.1 && Arc::ptr_eq(&user.shared, &self.shared) {
                Fence::order(&user, next)?;
            } else {
                // The stream cannot wait on the device for work outside its capture, or of another allocator.
                let _relaxed = self.shared.relax_capture();
                Fence::record(&user)?.wait()?;
            }
        }
        Ok(())
    }

    /// Frees the current allocations and allocates the saved ones. Memory that its owner still has is kept, and so is a
    /// block in use by other streams that was saved unchanged. Other such blocks become pending.
    ///
    /// Adds the changes to `all`. Returns the saved blocks that another thread has used or released since the check.
    fn restore(self: &Arc<Self>, saved: &[SavedBlock], all: &mut Restored) -> Vec<u64> {
        let mut state = self.state.lock();
        let mut saved = by_address(saved);
        let (mut freed, mut restored) = (Vec::new(), Vec::new());
        let (mut stays, mut behind) = (Vec::new(), Vec::new());
        for (id, now) in allocated(&state) {
            if !now.label.is_raw() {
                if saved.get(&now.address).is_some_and(|block| !block.label.is_raw()) {
                    saved.remove(&now.address);
                }
                continue;
            }
            if state.uses.contains_key(&id) && saved.get(&now.address).is_some_and(|block| now.is_at(block)) {
                saved.remove(&now.address);
                stays.push(now.address);
                continue;
            }
            freed.push(now);
            match state.take_uses(id) {
                Some(uses) => {
                    self.become_pending(&mut state, id);
                    if uses.exports == 0 {
                        behind.push((id, uses));
                    } else {
                        // Another thread has shared it since the check. The end of the last export continues the free.
                        state.pending.exported.insert(id, uses);
                    }
                }
                None => self.become_free_now(&mut state, id, Vec::new()),
            }
        }
        let mut missing = Vec::new();
        let mut walk = state.blocks.walk();
        for block in saved.into_values() {
            let Some(id) = state.blocks.allocate_at(&mut walk, block.address, block.bytes) else {
                missing.push(block.address);
                continue;
            };
            // No owner in Rust has it any more.
            let label = if block.label.is_raw() { block.label } else { Label::NONE };
            let request = Request { requested: block.requested, label };
            self.mark_allocated_slow(&mut state, id, request);
            // A guard of a neighbour may have become part of the block; those of its own bytes were ruled out before.
            state.blocks.make_raw(id, label);
            restored.push(block);
        }
        state.blocks.split = state.blocks.counted_split();
        self.flush_stats(&mut state.blocks);
        drop(state);
        self.shared.peaks.note(&self.counters);
        self.tell_restored(&freed, behind, &restored);
        for (list, blocks) in [(&mut all.freed, freed), (&mut all.allocated, restored)] {
            list.extend(blocks.into_iter().map(|block| block.address).chain(stays.iter().copied()));
        }
        missing
    }

    /// Notifies the trackers of a restore, and records the fences of the pending blocks.
    fn tell_restored(&self, freed: &[SavedBlock], behind: Vec<(BlockId, StreamUses<D>)>, allocated: &[SavedBlock]) {
        let mut outcome = CallbackOutcome::default();
        let waits: HashSet<u64> = {
            let state = self.state.lock();
            let address = |(id, _): &(BlockId, StreamUses<D>)| state.blocks.blocks[*id].address;
            behind.iter().map(address).collect()
        };
        for block in freed {
            let (address, requested) = (block.address, block.requested);
            outcome = outcome.and(self.tell(TraceAction::FreeRequested, address, requested));
            if !waits.contains(&address) {
                outcome = outcome.and(self.tell(TraceAction::FreeCompleted, address, requested));
            }
        }
        for (id, uses) in behind {
            // The next request of the heap retries a failure.
            outcome = outcome.and(self.record_fences(id, uses).unwrap_or_default());
        }
        for block in allocated {
            outcome = outcome.and(self.tell(TraceAction::Alloc, block.address, block.requested));
        }
    }
}

/// The saved allocations by address; no two have the same.
fn by_address(saved: &[SavedBlock]) -> BTreeMap<u64, SavedBlock> {
    saved.iter().map(|block| (block.address, *block)).collect()
}

/// The current allocations. Fails while a block is pending.
pub(crate) fn settled<D: Device>(state: &HeapState<D>) -> Result<Vec<SavedBlock>, PoolProblem> {
    match state.blocks.iter().find(|(_, block)| block.state == BlockState::Pending) {
        Some((_, block)) => Err(PoolProblem::Waiting { address: block.address }),
        None => Ok(allocated(state).into_iter().map(|(_, now)| now).collect()),
    }
}

/// The current allocations, with their blocks.
fn allocated<D: Device>(state: &HeapState<D>) -> Vec<(BlockId, SavedBlock)> {
    let blocks = state.blocks.iter().filter(|(_, block)| block.state == BlockState::Allocated);
    blocks
        .map(|(id, block)| {
            let saved = SavedBlock {
                address: block.address,
                bytes: block.bytes(),
                requested: block.requested,
                label: block.label,
            };
            (id, saved)
        })
        .collect()
}

//! Saving and restoring the allocations of a heap.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use cachette_hal::Device;

use crate::blocks::{BlockId, BlockState};
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::{Heap, HeapState, Request, StreamUses};
use crate::label::Label;
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::pool::{PoolProblem, Restored};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
    pub(crate) label: Label,
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
    pub(crate) fn save(&self) -> Result<Vec<SavedBlock>, PoolProblem> {
        let mut state = self.state.lock();
        state.blocks.coalesce();
        let waiting = state.blocks.iter().find(|(_, block)| block.state == BlockState::Pending);
        match waiting {
            Some((_, block)) => Err(PoolProblem::Waiting { address: block.address }),
            None => Ok(allocated(&state).into_iter().map(|(_, now)| now).collect()),
        }
    }

    pub(crate) fn check_restore(&self, saved: &[SavedBlock]) -> Result<(), PoolProblem> {
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
    pub(crate) fn order_restored(&self, saved: &[SavedBlock]) -> Result<(), Error> {
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
            if !ordered.insert(user.number()) {
                continue;
            }
            let captures = (user.capture()?, next.capture()?);
            if captures.0.is_some() && captures.0 != captures.1 {
                return Err(PoolProblem::Waiting { address }.of(self.pool_id()));
            }
            if captures.0 == captures.1 && Arc::ptr_eq(user.shared(), &self.shared) {
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
    pub(crate) fn restore(self: &Arc<Self>, saved: &[SavedBlock], all: &mut Restored) -> Vec<u64> {
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
        state.blocks.recount();
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
            let address = |(id, _): &(BlockId, StreamUses<D>)| state.blocks.block(*id).address;
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

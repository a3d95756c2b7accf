//! What is allocated in a heap, saved and brought back.

use cachette_hal::Device;

use super::{Ask, Heap};
use crate::core::BlockState;
use crate::observe::Action;
use crate::pool::PoolProblem;
use crate::probes;

/// An allocation as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
    /// Whether it had an owner, and was not known by its address alone.
    pub(crate) owned: bool,
}

impl Saved {
    /// Whether it is an owner's, as `other` is, at the same place.
    fn is_still(&self, other: &Self) -> bool {
        let place = (self.address, self.bytes) == (other.address, other.bytes);
        self.owned && other.owned && place
    }
}

impl<D: Device> Heap<D> {
    /// What is allocated now.
    pub(crate) fn save(&self) -> Result<Vec<Saved>, PoolProblem> {
        let mut state = self.state.lock();
        state.shelf.settle();
        let mut saved = Vec::new();
        for segment in state.shelf.view() {
            for block in &segment.blocks {
                let address = segment.base + block.offset;
                match block.state {
                    BlockState::Pending => return Err(PoolProblem::Waiting { address }),
                    BlockState::Allocated => saved.push(Saved {
                        address,
                        bytes: block.bytes,
                        requested: block.requested,
                        owned: !state.shelf.block(block.id).raw,
                    }),
                    _ => {}
                }
            }
        }
        Ok(saved)
    }

    /// Whether what was saved can be brought back.
    pub(crate) fn check_restore(&self, saved: &[Saved]) -> Result<(), PoolProblem> {
        if self.is_offering() {
            return Err(PoolProblem::Offered);
        }
        for now in self.save()?.iter().filter(|now| now.owned) {
            // No owner may find its memory gone, or given to another.
            if !saved.iter().any(|block| block.is_still(now)) {
                let address = now.address;
                return Err(PoolProblem::Owned { address });
            }
        }
        let mut state = self.state.lock();
        for block in saved {
            let address = block.address;
            if !state.shelf.could_hold(address, block.bytes) {
                return Err(PoolProblem::Changed { address });
            }
        }
        Ok(())
    }

    /// Frees what is allocated, and allocates what was, but for what its owner still has; the addresses of both.
    pub(crate) fn restore(&self, saved: &[Saved]) -> (Vec<u64>, Vec<u64>) {
        let mut state = self.state.lock();
        let mut saved = saved.to_vec();
        let mut freed = Vec::new();
        for segment in &state.shelf.view() {
            for block in &segment.blocks {
                if block.state != BlockState::Allocated {
                    continue;
                }
                let address = segment.base + block.offset;
                if !state.shelf.block(block.id).raw {
                    saved.retain(|saved| !(saved.owned && saved.address == address));
                    continue;
                }
                let kind = state.shelf.block(block.id).kind;
                self.counters.freed(kind, block.bytes, block.requested);
                freed.push((address, block.requested));
                state.note_free_requested(block.id, address, block.requested);
                state.note_free_completed(block.id, address, block.requested);
                probes::free(|| address);
                state.shelf.give(block.id);
            }
        }
        for block in &saved {
            let Some(id) = state.shelf.take_exactly(block.address, block.bytes) else {
                continue;
            };
            let ask = Ask {
                requested: block.requested,
                raw: true,
            };
            let _ = self.hand_out(state.shelf.block_mut(id), id, ask);
            state.shelf.make_raw(id);
            state.note_alloc(id, block.address, block.requested);
            probes::malloc(
                &self.shared,
                block.address,
                block.requested,
                self.lane.stream(),
            );
        }
        self.publish(&mut state);
        drop(state);
        self.shared.ledger.note();
        for (address, requested) in &freed {
            self.tell(Action::FreeRequested, *address, *requested);
            self.tell(Action::FreeCompleted, *address, *requested);
        }
        for block in &saved {
            self.tell(Action::Alloc, block.address, block.requested);
        }
        let freed = freed.into_iter().map(|(address, _)| address).collect();
        (freed, saved.iter().map(|block| block.address).collect())
    }
}

//! What is allocated in a heap, saved and brought back.

use cachette_hal::Device;

use super::{Ask, Heap};
use crate::core::{BlockState, BlockView};
use crate::observe::Action;
use crate::pool::PoolProblem;

/// An allocation as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
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
                    BlockState::Allocated if !state.shelf.block(block.id).raw => {
                        return Err(PoolProblem::Owned { address });
                    }
                    BlockState::Allocated => saved.push(Saved {
                        address,
                        bytes: block.bytes,
                        requested: block.requested,
                    }),
                    _ => {}
                }
            }
        }
        Ok(saved)
    }

    /// Whether what was saved can be brought back.
    pub(crate) fn check_restore(&self, saved: &[Saved]) -> Result<(), PoolProblem> {
        self.save()?;
        let mut state = self.state.lock();
        for block in saved {
            let address = block.address;
            if !state.shelf.could_hold(address, block.bytes) {
                return Err(PoolProblem::Changed { address });
            }
        }
        Ok(())
    }

    /// Frees what is allocated, and allocates what was; the addresses that were freed.
    pub(crate) fn restore(&self, saved: &[Saved]) -> Vec<u64> {
        let mut state = self.state.lock();
        let view = state.shelf.view();
        let allocated = |block: &&BlockView| block.state == BlockState::Allocated;
        let mut freed = Vec::new();
        for segment in &view {
            for block in segment.blocks.iter().filter(allocated) {
                let kind = state.shelf.block(block.id).kind;
                self.counters.freed(kind, block.bytes, block.requested);
                freed.push((segment.base + block.offset, block.requested));
                state.shelf.give(block.id);
            }
        }
        for block in saved {
            let Some(id) = state.shelf.take_exactly(block.address, block.bytes) else {
                continue;
            };
            let ask = Ask {
                requested: block.requested,
                raw: true,
            };
            let _ = self.hand_out(state.shelf.block_mut(id), id, ask);
            state.shelf.make_raw(id);
        }
        self.publish(&mut state);
        drop(state);
        self.shared.ledger.note();
        for (address, requested) in &freed {
            self.tell(Action::FreeRequested, *address, *requested);
            self.tell(Action::FreeCompleted, *address, *requested);
        }
        for block in saved {
            self.tell(Action::Alloc, block.address, block.requested);
        }
        freed.into_iter().map(|(address, _)| address).collect()
    }
}

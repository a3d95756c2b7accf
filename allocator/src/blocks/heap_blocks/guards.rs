//! The guards of free blocks: the next user waits for them, and splits and merges keep them.

use crate::blocks::{BlockId, HeapBlocks};

/// A condition that must hold before a free block is used again.
pub(crate) trait ReuseGuard: Clone {
    /// Returns whether a wait for this guard makes a wait for `other` unnecessary.
    fn covers(&self, other: &Self) -> bool;
}

impl<G: ReuseGuard> HeapBlocks<G> {
    #[cold]
    pub(crate) fn join_guards(&mut self, left: BlockId, right: BlockId) {
        let guards = self.take_guards(right);
        self.guard(left, guards);
    }

    #[cold]
    pub(crate) fn copy_guards(&mut self, from: BlockId, to: BlockId) {
        let guards = self.guards_of(from);
        self.guards.insert(to, guards);
        self.blocks[to].guarded = true;
    }

    pub(crate) fn guards_of(&self, id: BlockId) -> Vec<G> {
        self.guards.get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn take_guards(&mut self, id: BlockId) -> Vec<G> {
        if std::mem::take(&mut self.blocks[id].guarded) {
            return self.guards.remove(&id).unwrap_or_default();
        }
        Vec::new()
    }

    #[inline]
    pub(crate) fn free_guarded(&mut self, id: BlockId, guards: Vec<G>) {
        if !guards.is_empty() {
            self.guard(id, guards);
        }
        self.free(id);
    }

    /// Adds guards to a block, which keeps only the necessary ones.
    #[cold]
    pub(crate) fn guard(&mut self, id: BlockId, guards: Vec<G>) {
        self.blocks[id].guarded = true;
        let known = self.guards.entry(id).or_default();
        for guard in guards {
            if !known.iter().any(|other| other.covers(&guard)) {
                known.retain(|other| !guard.covers(other));
                known.push(guard);
            }
        }
    }
}

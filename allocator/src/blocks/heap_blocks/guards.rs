//! The guards of a shelf: they stand before the next use of a free block, and follow its bytes through splits and
//! merges.

use crate::blocks::guard::add_guards;
use crate::blocks::{BlockId, HeapBlocks, ReuseGuard};

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Lets the guards of `right` stand before `left` too.
    #[cold]
    pub(crate) fn join_guards(&mut self, left: BlockId, right: BlockId) {
        let guards = self.take_guards(right);
        add_guards(self.guards.entry(left).or_default(), guards);
        self.blocks[left].guarded = true;
    }

    /// Lets the guards of `from` stand before `to` as well.
    #[cold]
    pub(crate) fn copy_guards(&mut self, from: BlockId, to: BlockId) {
        let guards = self.guards.get(&from).cloned().unwrap_or_default();
        self.guards.insert(to, guards);
        self.blocks[to].guarded = true;
    }

    /// Takes the guards of a block that was taken.
    pub(crate) fn take_guards(&mut self, id: BlockId) -> Vec<G> {
        if std::mem::take(&mut self.blocks[id].guarded) {
            return self.guards.remove(&id).unwrap_or_default();
        }
        Vec::new()
    }

    /// Puts an allocated block back behind guards.
    pub(crate) fn free_guarded(&mut self, id: BlockId, guards: Vec<G>) {
        if !guards.is_empty() {
            self.blocks[id].guarded = true;
            add_guards(self.guards.entry(id).or_default(), guards);
        }
        self.free(id);
    }
}

//! Free blocks in order of place, and the first of them that is large enough.
//!
//! A search tree whose shape comes from the blocks' indices (a treap), in which every block knows the largest
//! of those below it. `born` holds that: blocks listed here have no age.

use crate::core::BlockId;
use crate::core::block::BlockTable;

/// Free blocks in order of [`Block::place`](super::Block::place): the oldest segment first, and by address there.
#[derive(Debug)]
pub(crate) struct AddressTree {
    root: BlockId,
}

impl Default for AddressTree {
    fn default() -> Self {
        Self {
            root: BlockId::NONE,
        }
    }
}

impl AddressTree {
    /// The first block of at least `grains`.
    pub(crate) fn first(&self, blocks: &BlockTable, grains: u32) -> BlockId {
        let mut at = self.root;
        if largest(blocks, at) < grains {
            return BlockId::NONE;
        }
        loop {
            let block = &blocks[at];
            if largest(blocks, block.left) >= grains {
                at = block.left;
            } else if block.grains >= grains {
                return at;
            } else {
                at = block.right;
            }
        }
    }

    /// Lists a free block.
    pub(crate) fn insert(&mut self, blocks: &mut BlockTable, id: BlockId) {
        self.root = insert(blocks, self.root, id);
    }

    /// Takes a listed block out.
    pub(crate) fn remove(&mut self, blocks: &mut BlockTable, id: BlockId) {
        self.root = remove(blocks, self.root, id);
    }

    /// Every listed block of at least `grains`, by place.
    pub(crate) fn at_least(&self, blocks: &BlockTable, grains: u32) -> Vec<BlockId> {
        let mut found = Vec::new();
        collect(blocks, self.root, grains, &mut found);
        found
    }
}

/// The largest block of a subtree, in grains; zero if there is none.
#[inline]
fn largest(blocks: &BlockTable, at: BlockId) -> u32 {
    if at.is_some() { blocks[at].born } else { 0 }
}

/// Brings up to date what a block knows of those below it.
#[inline]
fn refresh(blocks: &mut BlockTable, at: BlockId) {
    let block = &blocks[at];
    let below = largest(blocks, block.left).max(largest(blocks, block.right));
    let most = below.max(block.grains);
    blocks[at].born = most;
}

/// Adds a block to the subtree at `at`; its new root.
fn insert(blocks: &mut BlockTable, at: BlockId, id: BlockId) -> BlockId {
    if !at.is_some() || id.scatter() > at.scatter() {
        let (before, after) = part(blocks, at, blocks[id].place());
        blocks[id].left = before;
        blocks[id].right = after;
        refresh(blocks, id);
        return id;
    }
    if blocks[id].place() < blocks[at].place() {
        let left = insert(blocks, blocks[at].left, id);
        blocks[at].left = left;
    } else {
        let right = insert(blocks, blocks[at].right, id);
        blocks[at].right = right;
    }
    refresh(blocks, at);
    at
}

/// Parts a subtree into what lies before and after a place.
fn part(blocks: &mut BlockTable, at: BlockId, place: u64) -> (BlockId, BlockId) {
    if !at.is_some() {
        return (BlockId::NONE, BlockId::NONE);
    }
    let parted = if blocks[at].place() < place {
        let (before, after) = part(blocks, blocks[at].right, place);
        blocks[at].right = before;
        (at, after)
    } else {
        let (before, after) = part(blocks, blocks[at].left, place);
        blocks[at].left = after;
        (before, at)
    };
    refresh(blocks, at);
    parted
}

/// Takes a block out of the subtree at `at`; its new root.
fn remove(blocks: &mut BlockTable, at: BlockId, id: BlockId) -> BlockId {
    if at == id {
        return join(blocks, blocks[id].left, blocks[id].right);
    }
    if blocks[id].place() < blocks[at].place() {
        let left = remove(blocks, blocks[at].left, id);
        blocks[at].left = left;
    } else {
        let right = remove(blocks, blocks[at].right, id);
        blocks[at].right = right;
    }
    refresh(blocks, at);
    at
}

/// Joins two subtrees, all of the first before all of the second.
fn join(blocks: &mut BlockTable, left: BlockId, right: BlockId) -> BlockId {
    if !left.is_some() || !right.is_some() {
        return if left.is_some() { left } else { right };
    }
    if left.scatter() > right.scatter() {
        let joined = join(blocks, blocks[left].right, right);
        blocks[left].right = joined;
        refresh(blocks, left);
        left
    } else {
        let joined = join(blocks, left, blocks[right].left);
        blocks[right].left = joined;
        refresh(blocks, right);
        right
    }
}

fn collect(blocks: &BlockTable, at: BlockId, grains: u32, found: &mut Vec<BlockId>) {
    if !at.is_some() || blocks[at].born < grains {
        return;
    }
    collect(blocks, blocks[at].left, grains, found);
    if blocks[at].grains >= grains {
        found.push(at);
    }
    collect(blocks, blocks[at].right, grains, found);
}

#[cfg(test)]
mod tests;

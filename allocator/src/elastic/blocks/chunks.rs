//! The chunks under the blocks of a shelf, and which of them may be moved.

use crate::blocks::{Chunk, HeapBlocks, IdleChunk, ReuseGuard};

impl<G: ReuseGuard> HeapBlocks<G> {
    /// The chunks that may be moved, by place.
    pub(crate) fn spares(&mut self) -> Vec<IdleChunk> {
        self.settle();
        let Some(ground) = &self.ground else {
            return Vec::new();
        };
        let mut spares = Vec::new();
        for block in ground.places.iter() {
            let free = &self.blocks[block];
            let (start, within) = (free.address, free.bytes());
            spares.extend(ground.inside(start, start + within).map(|chunk| IdleChunk { chunk, block, within }));
        }
        spares
    }

    /// Notes that a chunk lies under the blocks from now on.
    pub(crate) fn add_chunk(&mut self, chunk: Chunk) {
        if let Some(ground) = &mut self.ground {
            ground.add(chunk);
        }
    }

    /// Notes that the chunk at an address is gone.
    pub(crate) fn remove_chunk(&mut self, at: u64) {
        if let Some(ground) = &mut self.ground {
            ground.remove(at);
        }
    }

    /// Every chunk, by address.
    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        let ground = self.ground.iter();
        ground.flat_map(|ground| ground.chunks()).collect()
    }

    /// The chunk that begins at an address.
    pub(crate) fn chunk_at(&self, at: u64) -> Option<Chunk> {
        self.ground.as_ref()?.at(at)
    }
}

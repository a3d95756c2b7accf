//! The chunks under the blocks of a shelf, and which of them may be moved.

use crate::blocks::{Chunk, HeapBlocks, IdleChunk, ReuseGuard};

impl<G: ReuseGuard> HeapBlocks<G> {
    /// The chunks that may be moved, by place.
    pub(crate) fn idle_chunks(&mut self) -> Vec<IdleChunk> {
        self.coalesce();
        let Some(chunk_map) = &self.chunk_map else {
            return Vec::new();
        };
        let mut idle_chunks = Vec::new();
        for block in chunk_map.places.iter() {
            let free = &self.blocks[block];
            let (start, within) = (free.address, free.bytes());
            idle_chunks.extend(chunk_map.inside(start, start + within).map(|chunk| IdleChunk { chunk, block, within }));
        }
        idle_chunks
    }

    /// Notes that a chunk lies under the blocks from now on.
    pub(crate) fn add_chunk(&mut self, chunk: Chunk) {
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.add(chunk);
        }
    }

    /// Notes that the chunk at an address is gone.
    pub(crate) fn remove_chunk(&mut self, at: u64) {
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.remove(at);
        }
    }

    /// Every chunk, by address.
    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        let chunk_map = self.chunk_map.iter();
        chunk_map.flat_map(|chunk_map| chunk_map.chunks()).collect()
    }

    /// The chunk that begins at an address.
    pub(crate) fn chunk_at(&self, at: u64) -> Option<Chunk> {
        self.chunk_map.as_ref()?.at(at)
    }
}

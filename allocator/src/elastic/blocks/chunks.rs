//! The chunks under the blocks of a heap, and which of them can be moved.

use crate::blocks::{Chunk, HeapBlocks, IdleChunk, ReuseGuard};

impl<G: ReuseGuard> HeapBlocks<G> {
    /// The idle chunks, by position.
    pub(crate) fn idle_chunks(&mut self) -> Vec<IdleChunk> {
        self.coalesce();
        let Some(chunk_map) = &self.chunk_map else { return Vec::new() };
        let mut idle_chunks = Vec::new();
        for block in chunk_map.places.iter() {
            let free = &self.blocks[block];
            let (start, within) = (free.address, free.bytes());
            idle_chunks.extend(chunk_map.inside(start, start + within).map(|chunk| IdleChunk { chunk, block, within }));
        }
        idle_chunks
    }

    /// Records a chunk that was mapped under the blocks.
    pub(crate) fn add_chunk(&mut self, chunk: Chunk) {
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.add(chunk);
        }
    }

    /// Removes the chunk at an address.
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

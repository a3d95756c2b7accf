//! Idle chunks that one elastic heap takes from another.
//!
//! A donor lists its idle chunks without holding them. The requesting thread holds them once its plan needs them. If
//! they are gone by then, or their stream is busy again, the thread plans again.

use std::sync::Arc;

use cachette_hal::{self as hal, Device, ErrorKind};

use crate::blocks::{Chunk, IdleChunk};
use crate::elastic::moves::Moved;
use crate::elastic::policy::Plan;
use crate::fence::Fence;
use crate::heap::Heap;

/// Idle chunks of another heap, not yet held.
#[derive(Debug)]
pub(crate) struct DonorOffer<D: Device> {
    heap: Arc<Heap<D>>,
    pub(crate) chunks: Vec<Chunk>,
}

/// Held chunks of another heap.
#[derive(Debug)]
pub(crate) struct DonatedChunks<D: Device> {
    pub(crate) heap: Arc<Heap<D>>,
    pub(crate) moved: Moved,
    /// The guards of their blocks in that heap.
    pub(crate) guards: Vec<Arc<Fence<D>>>,
}

impl<D: Device> Heap<D> {
    /// Collects the idle chunks of other elastic heaps whose stream is idle.
    pub(crate) fn offers(&self, others: &[Arc<Self>]) -> hal::Result<Vec<DonorOffer<D>>> {
        let mut offers = Vec::new();
        for heap in others {
            if std::ptr::eq(&raw const **heap, self) || heap.elastic.is_none() {
                continue;
            }
            let idle_chunks = heap.state.lock().blocks.idle_chunks();
            if idle_chunks.is_empty() || !heap.is_idle()? {
                continue;
            }
            let mut chunks = idle_chunks.iter().map(|spare| spare.chunk).collect();
            self.shared.chunks.retain_movable(&mut chunks, |chunk: &Chunk| chunk.id);
            offers.push(DonorOffer { heap: Arc::clone(heap), chunks });
        }
        Ok(offers)
    }

    /// Returns whether all work queued in the heap's stream has finished, according to one short poll.
    ///
    /// A captured stream counts as busy and is not polled, since an event would become part of its graph.
    fn is_idle(&self) -> hal::Result<bool> {
        if self.stream_state.ask_capturing()? {
            return Ok(false);
        }
        match Fence::record(&self.stream_state) {
            // Another thread has begun a capture meanwhile.
            Err(error) if error.kind() == ErrorKind::CaptureForbids => Ok(false),
            marked => marked?.passes_soon(),
        }
    }

    /// Holds the chunks that are still idle. It holds none if a graph may use them.
    pub(crate) fn reserve_chunks(&self, wanted: &[Chunk]) -> Moved {
        let mut state = self.state.lock();
        let mut moved = Moved::none();
        if !self.permits_release() {
            return moved;
        }
        moved.begun = self.begin_move(&state);
        if moved.begun.is_none() {
            return moved;
        }
        for spare in state.blocks.idle_chunks() {
            if !wanted.contains(&spare.chunk) {
                continue;
            }
            let IdleChunk { chunk, block, .. } = spare;
            let held = state.blocks.hold(block, chunk.at, chunk.end());
            let held = held.into_iter().flatten();
            moved.chunks.extend(held.map(|held| (chunk, held)));
        }
        moved
    }

    pub(crate) fn put_back_chunks(&self, moved: &Moved) {
        let held = moved.chunks.iter().map(|(_, held)| *held).collect();
        self.state.lock().blocks.put_back(held);
    }

    pub(crate) fn guards_of_moved(&self, moved: &Moved) -> Vec<Arc<Fence<D>>> {
        let state = self.state.lock();
        let guards = moved.chunks.iter().flat_map(|(_, held)| state.blocks.guards_of(*held));
        guards.collect()
    }
}

/// Holds the chunks of other heaps that a plan uses. Returns `None` if one of them is no longer available.
pub(crate) fn borrow<D: Device>(plan: &Plan, offers: &[DonorOffer<D>]) -> hal::Result<Option<Vec<DonatedChunks<D>>>> {
    let mut lent = Vec::new();
    for offer in offers {
        let used = |chunk: &&Chunk| plan.fills.iter().any(|fill| fill.spare == Some(chunk.id));
        let wanted: Vec<Chunk> = offer.chunks.iter().filter(used).copied().collect();
        if wanted.is_empty() {
            continue;
        }
        let moved = offer.heap.reserve_chunks(&wanted);
        let all = moved.chunks.len() == wanted.len();
        let guards = offer.heap.guards_of_moved(&moved);
        lent.push(DonatedChunks { heap: Arc::clone(&offer.heap), moved, guards });
        // Held chunks receive no further work, so the work that is now in the stream is the last.
        let idle = if all { offer.heap.is_idle() } else { Ok(false) };
        if matches!(idle, Ok(true)) {
            continue;
        }
        for DonatedChunks { heap, moved, .. } in lent {
            heap.put_back_chunks(&moved);
        }
        return idle.map(|_| None);
    }
    Ok(Some(lent))
}

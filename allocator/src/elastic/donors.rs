//! Spare chunks that one elastic heap takes from another.
//!
//! They are offered first, while nothing is held, and held once a plan wants them. By then they may be gone, or their
//! stream at work again: then the plan is made anew.

use std::sync::Arc;

use cachette_hal::{self as hal, Device, ErrorKind};

use crate::blocks::{Chunk, IdleChunk};
use crate::elastic::moves::Moved;
use crate::elastic::policy::Plan;
use crate::fence::Fence;
use crate::heap::Heap;

/// Chunks that another heap could do without.
#[derive(Debug)]
pub(crate) struct DonorOffer<D: Device> {
    heap: Arc<Heap<D>>,
    pub(crate) chunks: Vec<Chunk>,
}

/// Chunks that another heap gives up.
#[derive(Debug)]
pub(crate) struct DonatedChunks<D: Device> {
    pub(crate) heap: Arc<Heap<D>>,
    pub(crate) moved: Moved,
    /// What stood before their next use there.
    pub(crate) guards: Vec<Arc<Fence<D>>>,
}

impl<D: Device> Heap<D> {
    /// What other elastic heaps could do without, of those whose stream is idle.
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

    /// Whether everything queued in the heap's stream so far has finished, as far as a short look tells.
    ///
    /// A captured stream is not idle, and is not asked: an event would become part of its graph.
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

    /// Holds those chunks that are still spare.
    pub(crate) fn reserve_chunks(&self, wanted: &[Chunk]) -> Moved {
        let mut state = self.state.lock();
        let mut moved = Moved::none();
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

/// Takes the chunks of other heaps that a plan uses; `None` if one of them is not to be had any more.
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
        // Held now, they can get no further work, so what is in the stream now is all that there will be.
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

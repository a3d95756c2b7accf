//! PyTorch's expandable segments, as a model without a device.
//!
//! The model follows `CUDACachingAllocator.cpp`: requests are rounded to 512 bytes and served by best fit, where a block
//! at the end of the mapped memory counts as large as it can grow. A miss maps whole granules, of 2 MiB for requests up
//! to 1 MiB and of 20 MiB above, from the lowest address that has room. At the limit all free granules are unmapped.
//! A trace has no uses by other streams, so a freed block is free at once.

use std::collections::BTreeSet;

use crate::trace::{Operation, Trace};

/// Requests are multiples of it.
const ROUNDING: u64 = 512;
/// The largest request that the heap of small blocks serves.
const SMALL: u64 = 1 << 20;
/// What the two heaps of a stream map at once.
const GRANULES: [u64; 2] = [2 << 20, 20 << 20];
/// More addresses than any trace needs.
const ADDRESSES: u64 = 1 << 60;

/// Plays `trace` under a limit, and returns the highest bytes mapped; `None` if it runs out of memory.
pub(super) fn play(trace: &Trace, limit: Option<u64>) -> Option<u64> {
    let mut model = Model::new(trace.streams, limit.unwrap_or(u64::MAX));
    let mut live = vec![None; trace.slots];
    for operation in &trace.operations {
        match *operation {
            Operation::Allocate { slot, stream, bytes } => {
                live[slot as usize] = Some(model.allocate(stream as usize, bytes)?);
            }
            Operation::Free { slot } => {
                if let Some((heap, block)) = live[slot as usize].take() {
                    model.heaps[heap].free(block);
                }
            }
        }
    }
    Some(model.peak)
}

/// Two heaps for each stream, of small and of large blocks, and the memory that they map.
struct Model {
    heaps: Vec<Heap>,
    mapped: u64,
    peak: u64,
    limit: u64,
}

impl Model {
    fn new(streams: usize, limit: u64) -> Self {
        let heaps = (0..streams).flat_map(|_| GRANULES.map(Heap::new)).collect();
        Self { heaps, mapped: 0, peak: 0, limit }
    }

    /// Returns the heap and the block; `None` if the limit is too low.
    fn allocate(&mut self, stream: usize, bytes: u64) -> Option<(usize, usize)> {
        let bytes = bytes.checked_next_multiple_of(ROUNDING)?.max(ROUNDING);
        let heap = 2 * stream + usize::from(bytes > SMALL);
        let found = self.heaps[heap].best_fit(bytes).or_else(|| self.grow(heap, bytes)).or_else(|| {
            self.mapped -= self.heaps.iter_mut().map(Heap::unmap_free).sum::<u64>();
            self.grow(heap, bytes)
        });
        found.map(|block| (heap, self.heaps[heap].split(block, bytes)))
    }

    /// Maps what a request lacks; `None` if that exceeds the limit. What was mapped before that stays mapped.
    fn grow(&mut self, heap: usize, bytes: u64) -> Option<usize> {
        let heap = &mut self.heaps[heap];
        let mut block = heap.lowest_room(bytes)?;
        if heap.blocks[block].state == State::Free {
            heap.delist(block);
        }
        while heap.blocks[block].state == State::Unmapped || heap.blocks[block].bytes < bytes {
            let is_mapped = heap.blocks[block].state == State::Free;
            let lacking = if is_mapped { bytes - heap.blocks[block].bytes } else { bytes };
            let next = if is_mapped { heap.blocks[block].next? } else { block };
            let more = lacking.min(heap.blocks[next].bytes).next_multiple_of(heap.granule);
            if more > self.limit - self.mapped {
                if is_mapped {
                    heap.enlist(block);
                }
                return None;
            }
            block = heap.map(next, more);
            self.mapped += more;
        }
        self.peak = self.peak.max(self.mapped);
        Some(block)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Allocated,
    Free,
    Unmapped,
}

/// A part of a heap's addresses; the blocks tile them.
#[derive(Clone, Copy, Debug)]
struct Block {
    address: u64,
    bytes: u64,
    state: State,
    previous: Option<usize>,
    next: Option<usize>,
}

/// The blocks of one stream and size class, in one range of addresses.
struct Heap {
    granule: u64,
    blocks: Vec<Block>,
    /// Entries of `blocks` that are in no list.
    unused: Vec<usize>,
    /// By size, then address.
    free: BTreeSet<(u64, u64, usize)>,
    /// By address.
    unmapped: BTreeSet<(u64, usize)>,
}

impl Heap {
    fn new(granule: u64) -> Self {
        let all = Block { address: 0, bytes: ADDRESSES, state: State::Unmapped, previous: None, next: None };
        Self {
            granule,
            blocks: vec![all],
            unused: Vec::new(),
            free: BTreeSet::new(),
            unmapped: BTreeSet::from([(0, 0)]),
        }
    }

    /// The smallest free block that is large enough, by the size that each can grow to.
    fn best_fit(&mut self, bytes: u64) -> Option<usize> {
        let mut candidates = self.free.range((bytes, 0, 0)..).map(|(_, _, block)| *block);
        let mut best = candidates.next()?;
        for block in candidates {
            if self.can_grow_to(block) >= self.can_grow_to(best) {
                break;
            }
            best = block;
        }
        self.delist(best);
        Some(best)
    }

    fn can_grow_to(&self, block: usize) -> u64 {
        let Block { bytes, next, .. } = self.blocks[block];
        let after = next.map(|next| self.blocks[next]).filter(|next| next.state == State::Unmapped);
        bytes + after.map_or(0, |next| next.bytes)
    }

    /// The lowest unmapped block, or the free block before it, from which enough addresses are not allocated.
    fn lowest_room(&self, bytes: u64) -> Option<usize> {
        let is_open = |block: usize| self.blocks[block].state != State::Allocated;
        let starts = self.unmapped.iter().map(|(_, block)| {
            let before = self.blocks[*block].previous.filter(|before| is_open(*before));
            before.unwrap_or(*block)
        });
        starts.into_iter().find(|start| {
            let mut room = 0;
            let mut block = Some(*start).filter(|block| is_open(*block));
            while let Some(open) = block.filter(|_| room < bytes) {
                room += self.blocks[open].bytes;
                block = self.blocks[open].next.filter(|next| is_open(*next));
            }
            room >= bytes
        })
    }

    /// Maps the first `bytes` of an unmapped block and joins them with free neighbours; the result is in no list.
    fn map(&mut self, block: usize, bytes: u64) -> usize {
        self.delist(block);
        if self.blocks[block].bytes > bytes {
            let rest = self.cut(block, bytes);
            self.enlist(rest);
        }
        self.blocks[block].state = State::Free;
        self.join(block)
    }

    /// Unmaps every whole granule that is free, and returns the bytes.
    fn unmap_free(&mut self) -> u64 {
        let free: Vec<usize> = self.free.iter().map(|(_, _, block)| *block).collect();
        free.into_iter().map(|block| self.unmap(block)).sum()
    }

    fn unmap(&mut self, mut block: usize) -> u64 {
        let Block { address, bytes, .. } = self.blocks[block];
        let start = address.next_multiple_of(self.granule);
        let end = (address + bytes) / self.granule * self.granule;
        if start >= end {
            return 0;
        }
        self.delist(block);
        if start > address {
            let rest = self.cut(block, start - address);
            self.enlist(block);
            block = rest;
        }
        if end < address + bytes {
            let after = self.cut(block, end - start);
            self.enlist(after);
        }
        self.blocks[block].state = State::Unmapped;
        let joined = self.join(block);
        self.enlist(joined);
        end - start
    }

    /// Allocates the first `bytes` of a free block that is in no list.
    fn split(&mut self, block: usize, bytes: u64) -> usize {
        if self.blocks[block].bytes >= bytes + ROUNDING {
            let rest = self.cut(block, bytes);
            self.enlist(rest);
        }
        self.blocks[block].state = State::Allocated;
        block
    }

    fn free(&mut self, block: usize) {
        self.blocks[block].state = State::Free;
        let joined = self.join(block);
        self.enlist(joined);
    }

    /// Cuts a block that is in no list after `bytes`; returns the rest, which has the same state and is in no list.
    fn cut(&mut self, block: usize, bytes: u64) -> usize {
        let whole = self.blocks[block];
        let rest = Block { address: whole.address + bytes, bytes: whole.bytes - bytes, previous: Some(block), ..whole };
        let index = self.unused.pop().unwrap_or_else(|| {
            self.blocks.push(rest);
            self.blocks.len() - 1
        });
        self.blocks[index] = rest;
        if let Some(next) = whole.next {
            self.blocks[next].previous = Some(index);
        }
        self.blocks[block].bytes = bytes;
        self.blocks[block].next = Some(index);
        index
    }

    /// Joins a block that is in no list with the neighbours of its state, which leave theirs.
    fn join(&mut self, block: usize) -> usize {
        let state = self.blocks[block].state;
        if let Some(next) = self.blocks[block].next.filter(|next| self.blocks[*next].state == state) {
            self.delist(next);
            self.absorb(block, next);
        }
        match self.blocks[block].previous.filter(|previous| self.blocks[*previous].state == state) {
            Some(previous) => {
                self.delist(previous);
                self.absorb(previous, block);
                previous
            }
            None => block,
        }
    }

    fn absorb(&mut self, block: usize, next: usize) {
        let gone = self.blocks[next];
        self.blocks[block].bytes += gone.bytes;
        self.blocks[block].next = gone.next;
        if let Some(after) = gone.next {
            self.blocks[after].previous = Some(block);
        }
        self.unused.push(next);
    }

    fn enlist(&mut self, index: usize) {
        let block = self.blocks[index];
        match block.state {
            State::Free => drop(self.free.insert((block.bytes, block.address, index))),
            State::Unmapped => drop(self.unmapped.insert((block.address, index))),
            State::Allocated => (),
        }
    }

    fn delist(&mut self, index: usize) {
        let block = self.blocks[index];
        self.free.remove(&(block.bytes, block.address, index));
        self.unmapped.remove(&(block.address, index));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn allocate(slot: u32, bytes: u64) -> Operation {
        Operation::Allocate { slot, stream: 0, bytes }
    }

    fn trace(operations: Vec<Operation>) -> Trace {
        Trace { operations, slots: 4, streams: 1, ..Trace::default() }
    }

    #[test]
    fn small_and_large_requests_map_their_own_granules() {
        assert_eq!(play(&trace(vec![allocate(0, 100)]), None), Some(2 * MIB));
        assert_eq!(play(&trace(vec![allocate(0, MIB + 1)]), None), Some(20 * MIB));
        assert_eq!(play(&trace(vec![allocate(0, 100), allocate(1, 21 * MIB)]), None), Some(42 * MIB));
    }

    #[test]
    fn a_segment_grows_behind_its_last_free_block() {
        // 15 MiB are free at the end of the first granule, so 30 MiB need one more.
        assert_eq!(play(&trace(vec![allocate(0, 5 * MIB), allocate(1, 30 * MIB)]), None), Some(40 * MIB));
    }

    #[test]
    fn free_granules_are_unmapped_at_the_limit() {
        // The second hole is too small for 60 MiB, and its two whole granules pay for them.
        let holes =
            vec![allocate(0, 60 * MIB), allocate(1, 20 * MIB), Operation::Free { slot: 0 }, allocate(2, 80 * MIB)];
        assert_eq!(play(&trace(holes.clone()), None), Some(160 * MIB));
        assert_eq!(play(&trace(holes.clone()), Some(100 * MIB)), Some(100 * MIB));
        assert_eq!(play(&trace(holes), Some(100 * MIB - 1)), None);
    }

    /// The ratios of PyTorch 2.11 with expandable segments on an H200, from benches/RESULTS.md.
    #[test]
    fn the_model_holds_what_pytorch_held_within_one_percent() {
        for (name, measured) in [
            ("gnn_sampled", 1.1693),
            ("gpt2_varlen", 1.0335),
            ("kv_server", 1.2100),
            ("llama_generate", 1.0478),
            ("prefetch_streams", 1.0336),
            ("resnet_multiscale", 1.0119),
        ] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../benches/traces/{name}.trace.gz"));
            let trace = Trace::open(&path).unwrap();
            let held = super::super::ratio(play(&trace, None).unwrap(), trace.peak_requested);
            assert!((held / measured - 1.0).abs() < 0.01, "{name}: {held:.4}, PyTorch had {measured:.4}");
        }
    }
}

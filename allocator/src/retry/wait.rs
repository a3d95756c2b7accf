//! The retry steps that wait for the uses of other streams.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use cachette_hal::{self as hal, Device};

use crate::blocks::{Block, BlockId, BlockState, SegmentCopy};
use crate::fence::Fence;
use crate::heap::{Heap, HeapCopy};
use crate::observe::tracing;
use crate::retry::release::release_whole;
use crate::retry::{Retry, Step};
use crate::size::SegmentKind;

impl<D: Device> Retry<'_, D> {
    /// Waits for the set of uses that ends first and makes a block large enough, if there is one.
    pub(super) fn wait_for_cheapest(&self) -> Step<D> {
        let sets = sufficient(&self.heap.copy(), self.kind, self.rounded);
        let sets: Vec<_> = sets.iter().map(|set| self.heap.fences_of(set)).collect();
        if sets.is_empty() {
            return Ok(());
        }
        self.wait_for_any(&sets)?;
        self.heap.process_events()?;
        self.search()
    }

    /// Waits for one segment after the other to become free, in any order, until the request can be served.
    pub(super) fn wait_on(&self) -> Step<D> {
        let mut waiting: Vec<(Arc<Heap<D>>, Points<D>)> = Vec::new();
        for heap in self.donors() {
            let segments = segments_to_come(&heap.copy()).into_iter();
            waiting.extend(segments.map(|blocks| (Arc::clone(&heap), heap.fences_of(&blocks))));
        }
        while !waiting.is_empty() {
            let sets: Vec<_> = waiting.iter().map(|(_, set)| set.clone()).collect();
            let frees = self.frees();
            let first = self.wait_for_any(&sets)?;
            let (heap, _) = waiting.swap_remove(first);
            heap.process_events()?;
            self.search()?;
            release_whole(&heap)?;
            if self.frees() != frees {
                self.alloc_segment_again()?;
            }
        }
        Ok(())
    }

    /// Waits until all fences of one set have passed, and returns its index. A slow set does not delay the others.
    fn wait_for_any(&self, sets: &[Points<D>]) -> hal::Result<usize> {
        self.shared.totals.waits.fetch_add(1, Relaxed);
        tracing::waiting(|| first_passed(sets))
    }
}

/// Polls until all fences of one set have passed, and returns its index.
fn first_passed<D: Device>(sets: &[Points<D>]) -> hal::Result<usize> {
    if let [only] = sets {
        only.iter().try_for_each(|fence| fence.wait())?;
        return Ok(0);
    }
    let mut pause = Duration::from_micros(1);
    loop {
        for (index, set) in sets.iter().enumerate() {
            let passed: hal::Result<bool> = set.iter().try_fold(true, |all, fence| Ok(all && fence.poll()?.is_done()));
            if passed? {
                return Ok(index);
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Fences that must all have passed.
type Points<D> = Vec<Arc<Fence<D>>>;

const LONGEST_PAUSE: Duration = Duration::from_micros(100);

/// Returns sets of blocks. Each set forms `bytes` together with its free neighbours after its uses have ended. The set
/// whose last fence was recorded first comes first. Every set is minimal for its start.
fn sufficient(heap: &HeapCopy, kind: SegmentKind, bytes: u64) -> Vec<Vec<BlockId>> {
    let mut sets: Vec<(u64, Vec<BlockId>)> = Vec::new();
    for segment in heap.blocks.segments.iter().filter(|segment| heap.blocks.elastic || segment.kind == kind) {
        let blocks: Vec<_> = heap.blocks.blocks_of(segment).collect();
        let runs = blocks.split(|block| !can_come_free(heap, *block));
        sets.extend(runs.flat_map(|run| (0..run.len()).filter_map(|at| joined(heap, &run[at..], bytes))));
    }
    sets.sort();
    sets.dedup();
    sets.truncate(MOST_SETS);
    sets.into_iter().map(|(_, set)| set).collect()
}

/// The limit on the number of sets. The first set to pass is probably among these.
const MOST_SETS: usize = 64;

/// Returns whether a block is free, or waits for recorded fences.
fn can_come_free(heap: &HeapCopy, (id, block): (BlockId, &Block)) -> bool {
    match block.state {
        BlockState::Free | BlockState::Recent => true,
        BlockState::Pending => heap.last_points.contains_key(&id),
        _ => false,
    }
}

/// Returns the blocks to wait for so that the first blocks of `run` form `bytes`, and the last of their fences. Returns
/// `None` if `run` is too short, or if no block in it is pending.
fn joined(heap: &HeapCopy, run: &[(BlockId, &Block)], bytes: u64) -> Option<(u64, Vec<BlockId>)> {
    let mut size = 0;
    let (mut last, mut blocks) = (0, Vec::new());
    for (id, block) in run {
        size += block.bytes();
        if let Some(point) = heap.last_points.get(id) {
            last = last.max(*point);
            blocks.push(*id);
        }
        if size >= bytes {
            return (!blocks.is_empty()).then_some((last, blocks));
        }
    }
    None
}

/// Returns the pending blocks of every segment that would be idle after their fences have passed. An elastic segment
/// releases its chunks separately, so each of its blocks forms a set.
fn segments_to_come(heap: &HeapCopy) -> Vec<Vec<BlockId>> {
    let waiting = |segment: &SegmentCopy| -> Vec<BlockId> {
        heap.blocks.blocks_of(segment).map(|(id, _)| id).filter(|id| heap.last_points.contains_key(id)).collect()
    };
    let segments = heap.blocks.segments.iter();
    if heap.blocks.elastic {
        return segments.flat_map(waiting).map(|id| vec![id]).collect();
    }
    let whole = segments.filter(|segment| heap.blocks.blocks_of(segment).all(|block| can_come_free(heap, block)));
    whole.map(waiting).filter(|waiting| !waiting.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cachette_hal::StreamRef;

    use super::*;
    use crate::blocks::{HeapBlocks, HeapBlocksCopy};
    use crate::heap::history::Stacks;
    use crate::heap_policy::HeapPolicy;
    use crate::pool::PoolId;

    const MIB: u64 = 1 << 20;

    /// A segment of four blocks of 256 KiB, with the fences they wait for; `None` is allocated, zero is free.
    fn heap(points: [Option<u64>; 4]) -> (HeapCopy, Vec<BlockId>) {
        let mut blocks: HeapBlocks<()> = HeapBlocks::default();
        blocks.add_segment(1 << 40, MIB, SegmentKind::Small);
        let ids: Vec<_> = (0..4).map(|_| blocks.allocate(&HeapPolicy::default(), MIB / 4)).collect();
        let mut heap = HeapCopy {
            blocks: HeapBlocksCopy::default(),
            stacks: Stacks::default(),
            stream: StreamRef::DEFAULT,
            pool: PoolId::DEFAULT,
            reserved: 0,
            last_points: HashMap::new(),
        };
        blocks.copy_into(&mut heap.blocks);
        for (id, point) in ids.iter().zip(points) {
            let state = &mut heap.blocks.blocks[id.index()].state;
            match point {
                None => {}
                Some(0) => *state = BlockState::Free,
                Some(point) => {
                    *state = BlockState::Pending;
                    heap.last_points.insert(*id, point);
                }
            }
        }
        (heap, ids)
    }

    #[test]
    fn d2_sets_of_uses_are_minimal_and_the_earliest_is_first() {
        let (heap, ids) = heap([Some(9), Some(3), Some(4), Some(1)]);
        let sets = |bytes| sufficient(&heap, SegmentKind::Small, bytes);
        let single = |of: usize| vec![ids[of]];
        assert_eq!(sets(MIB / 4), [single(3), single(1), single(2), single(0)]);
        let pairs = [vec![ids[1], ids[2]], vec![ids[2], ids[3]], vec![ids[0], ids[1]]];
        assert_eq!(sets(MIB / 2), pairs);
        assert_eq!(sets(MIB), std::slice::from_ref(&ids));
        assert!(sets(2 * MIB).is_empty());
        assert!(sufficient(&heap, SegmentKind::Large, MIB / 4).is_empty());
        assert_eq!(segments_to_come(&heap), [ids]);
    }

    #[test]
    fn d2_free_neighbours_are_used_and_allocated_ones_part() {
        let (heap, ids) = heap([Some(5), Some(0), None, Some(2)]);
        assert_eq!(sufficient(&heap, SegmentKind::Small, MIB / 2), [vec![ids[0]]]);
        assert!(sufficient(&heap, SegmentKind::Small, 3 * MIB / 4).is_empty());
        assert!(segments_to_come(&heap).is_empty());
    }
}

//! The retry steps that return memory: those that release idle segments, and those that wait for uses of other streams.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use cachette_hal::{self as hal, Device, ErrorKind, Progress};

use crate::blocks::{Block, BlockId, BlockState, IdleSegment, Segment};
use crate::device_state::fraction_of;
use crate::error::sum_all;
use crate::fence::Fence;
use crate::heap::{Heap, HeapCopy};
use crate::retry::{Retry, Step};
use crate::size::SegmentKind;
use crate::stats::{Counted, Row};

impl<D: Device> Retry<'_, D> {
    /// Releases segments that have been idle for long, once more than a configured share of the limit is held.
    ///
    /// Each round releases the segments at least as old as the average of those that can be released.
    pub(super) fn garbage_collect(&self) -> hal::Result<()> {
        let settings = &self.shared.settings;
        let (Some(limit), Some(threshold)) = (settings.limit(), settings.config().gc_threshold()) else {
            return Ok(());
        };
        let allowed = fraction_of(threshold, limit);
        let target = self.shared.totals.reserved.load(Relaxed).saturating_sub(allowed);
        let mut reclaimed = 0;
        while reclaimed < target {
            let released = self.garbage_collect_older_half()?;
            if released == 0 {
                break;
            }
            reclaimed += released;
        }
        Ok(())
    }

    fn garbage_collect_older_half(&self) -> hal::Result<u64> {
        let mut idle: Vec<(Arc<Heap<D>>, IdleSegment)> = Vec::new();
        for heap in self.donors() {
            let large = heap.idle_segments()?.into_iter().filter(|idle| idle.kind == SegmentKind::Large);
            idle.extend(large.map(|idle| (Arc::clone(&heap), idle)));
        }
        let ages: u64 = idle.iter().map(|(_, idle)| u64::from(idle.age)).sum();
        let count = idle.len() as u64;
        let old = idle.iter().filter(|(_, idle)| u64::from(idle.age) * count >= ages);
        sum_all(old.map(|(heap, idle)| heap.release(*idle)))
    }

    /// Releases unsplittable segments of this stream: the smallest that is large enough, or the largest ones until
    /// their sum is. Returns whether enough was released.
    pub(super) fn release_enough(&self) -> hal::Result<bool> {
        if self.policy.max_split == u64::MAX {
            return Ok(false);
        }
        let enough = self.rounded.max(self.policy.max_split);
        let mut idle = self.heap.idle_segments()?;
        idle.retain(|idle| idle.kind == self.kind && idle.bytes >= self.policy.max_split);
        idle.sort_by_key(|idle| (idle.bytes, idle.order));
        if let Some(single) = idle.iter().find(|idle| idle.bytes >= enough) {
            return Ok(self.heap.release(*single)? > 0);
        }
        let mut released = 0;
        for idle in idle.into_iter().rev() {
            if released >= enough {
                break;
            }
            released += self.heap.release(idle)?;
        }
        Ok(released >= enough)
    }

    /// Waits for the set of uses that ends first and makes a block large enough, if there is one.
    pub(super) fn wait_for_cheapest(&self) -> Step<D> {
        if self.heap.counters.now(Row::All, Counted::Pending) == 0 {
            return Ok(());
        }
        let sets = sufficient(&self.heap.copy(), self.kind, self.rounded);
        // They overlap, so each is a call.
        let sets: Vec<_> =
            sets.into_iter().flat_map(|set| self.heap.state.lock().pending.last_fences_of(&[set])).collect();
        if sets.is_empty() {
            return Ok(());
        }
        if !self.wait_for_any(&sets.iter().map(Vec::as_slice))? {
            return Ok(());
        }
        self.heap.process_events()?;
        self.search()
    }

    /// Waits for one segment after the other to become free, in any order, until the request can be served.
    pub(super) fn wait_on(&self) -> Step<D> {
        let mut waiting: Vec<_> = self.donors().iter().flat_map(|heap| uses_to_end(heap, 0)).collect();
        while !waiting.is_empty() {
            waiting.sort_by_key(|uses| uses.last);
            let frees = self.frees();
            let earliest = &waiting[..waiting.len().min(MOST_SETS)];
            self.wait_for_any(&earliest.iter().map(|uses| uses.fences.as_slice()))?;
            let passed = earliest.iter().map(|uses| has_passed(&uses.fences)).collect::<hal::Result<Vec<_>>>()?;
            let mut states = passed.iter();
            waiting.retain(|_| states.next() != Some(&Passed::Captured));
            let mut states = passed.iter().filter(|passed| **passed != Passed::Captured);
            let ended: Vec<_> = waiting.extract_if(.., |_| states.next() == Some(&Passed::Yes)).collect();
            let heaps: BTreeMap<_, _> = ended.iter().map(|uses| (uses.heap.number, &uses.heap)).collect();
            heaps.values().try_for_each(|heap| heap.process_events())?;
            self.search()?;
            heaps.values().try_for_each(|heap| release_whole(heap))?;
            if self.frees() != frees {
                self.alloc_segment_again()?;
            }
            for uses in ended.iter().filter(|uses| uses.heap.is_elastic()) {
                let stream = |uses: &EndingUses<D>| uses.fences[0].order_key().0;
                let next = uses_to_end(&uses.heap, uses.last + 1);
                waiting.extend(next.into_iter().filter(|next| stream(next) == stream(uses)));
            }
        }
        Ok(())
    }

    /// Waits until all fences of any one set have passed. Returns `false` if each has one in a captured stream.
    fn wait_for_any<'a>(&self, sets: &(impl Iterator<Item = &'a [Arc<Fence<D>>]> + Clone)) -> hal::Result<bool>
    where
        D: 'a,
    {
        self.shared.totals.waits.fetch_add(1, Relaxed);
        let mut pause = Duration::from_micros(1);
        self.shared.callbacks.waiting(|| {
            loop {
                let mut waits = None;
                for (index, set) in sets.clone().enumerate() {
                    match has_passed(set)? {
                        Passed::Yes => return Ok(true),
                        Passed::NotYet => waits = Some(if index == 0 { set } else { &[] }),
                        Passed::Captured => {}
                    }
                }
                match waits {
                    None => return Ok(false),
                    // The driver can wait for one set, but not for the first of several.
                    Some(only @ [_, ..]) if sets.clone().nth(1).is_none() => {
                        only.iter().try_for_each(|fence| fence.wait())?;
                    }
                    Some(_) => thread::sleep(pause),
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        })
    }
}

/// Releases all unused memory of a heap, after a wait for its stream.
pub(crate) fn release_whole<D: Device>(heap: &Heap<D>) -> hal::Result<()> {
    heap.release_idle()?;
    if heap.stream_state.ask_capturing()? {
        return Ok(());
    }
    heap.wait_and_unmap()?;
    // No work uses the memory any more, so only what the driver refused remains. This retries it once.
    heap.unmap_pending();
    Ok(())
}

/// Uses whose end lets a heap release memory.
struct EndingUses<D: Device> {
    heap: Arc<Heap<D>>,
    /// All of them must pass.
    fences: Vec<Arc<Fence<D>>>,
    /// The number of the last fence.
    last: u64,
}

/// Returns the pending uses of a heap whose end lets it release memory, from the fence `first` on.
///
/// Elastic segments release chunks one by one. Fences pass in order, so the next one of each stream is enough.
fn uses_to_end<D: Device>(heap: &Arc<Heap<D>>, first: u64) -> Vec<EndingUses<D>> {
    let sets: Vec<_> = if heap.is_elastic() {
        heap.state.lock().pending.first_fences().into_iter().map(|fence| vec![fence]).collect()
    } else {
        let segments = segments_to_come(&heap.copy());
        heap.state.lock().pending.last_fences_of(&segments)
    };
    let last_of = |fences: &[Arc<Fence<D>>]| fences.iter().map(|fence| fence.order_key().1).max();
    let uses = sets.into_iter().filter_map(|fences| {
        let last = last_of(&fences).filter(|last| *last >= first)?;
        Some(EndingUses { heap: Arc::clone(heap), fences, last })
    });
    uses.collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Passed {
    Yes,
    NotYet,
    /// One of them is in a captured stream, whose work does not run.
    Captured,
}

fn has_passed<D: Device>(fences: &[Arc<Fence<D>>]) -> hal::Result<Passed> {
    for fence in fences {
        match fence.poll() {
            Err(error) if error.kind() == ErrorKind::CaptureForbids => return Ok(Passed::Captured),
            Ok(Progress::Pending) => return Ok(Passed::NotYet),
            polled => _ = polled?,
        }
    }
    Ok(Passed::Yes)
}

const LONGEST_PAUSE: Duration = Duration::from_micros(100);

/// Returns sets of blocks. Each set forms `bytes` together with its free neighbours after its uses have ended. The set
/// whose last fence was recorded first comes first. Every set is minimal for its start.
fn sufficient(heap: &HeapCopy, kind: SegmentKind, bytes: u64) -> Vec<Vec<BlockId>> {
    let segments = heap.blocks.segments.iter().filter(|segment| heap.blocks.elastic || segment.kind == kind);
    let blocks: Vec<Vec<_>> = segments.map(|segment| heap.blocks.blocks_of(segment).collect()).collect();
    let runs: Vec<_> = blocks.iter().flat_map(|blocks| blocks.split(|block| !can_come_free(heap, *block))).collect();
    let mut windows: Vec<_> = runs.iter().enumerate().flat_map(|(at, run)| windows(heap, at, run, bytes)).collect();
    windows.sort_by_key(|window| window.last);
    windows.truncate(MOST_SETS);
    let pending = |window: Window| {
        let blocks = runs[window.run][window.blocks].iter().map(|(id, _)| *id);
        blocks.filter(|id| heap.last_points.contains_key(id)).collect()
    };
    windows.into_iter().map(pending).collect()
}

/// The limit on the number of sets. The first set to pass is probably among these.
const MOST_SETS: usize = 64;

/// Returns whether a block is free, or waits for recorded fences.
fn can_come_free(heap: &HeapCopy, (id, block): (BlockId, &Block)) -> bool {
    match block.state {
        BlockState::Free | BlockState::LastFreed => true,
        BlockState::Pending => heap.last_points.contains_key(&id),
        _ => false,
    }
}

/// Neighbours in a run of blocks, the first and the last of them pending.
struct Window {
    run: usize,
    blocks: RangeInclusive<usize>,
    /// The last fence that one of them waits for.
    last: u64,
}

/// Returns the pending blocks of each shortest part of `run` that forms `bytes`. Two indices move over the run once.
fn windows(heap: &HeapCopy, at: usize, run: &[(BlockId, &Block)], bytes: u64) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    // The pending blocks from `start` to `end`, and of these the ones with the last fences, in descending order.
    let (mut pending, mut latest): (VecDeque<usize>, VecDeque<(usize, u64)>) = Default::default();
    let (mut end, mut size) = (0, 0);
    for start in 0..run.len() {
        while size < bytes
            && let Some((id, block)) = run.get(end)
        {
            size += block.bytes();
            if let Some(point) = heap.last_points.get(id) {
                pending.push_back(end);
                while latest.back().is_some_and(|(_, known)| known <= point) {
                    latest.pop_back();
                }
                latest.push_back((end, *point));
            }
            end += 1;
        }
        if size < bytes {
            break;
        }
        if let (Some(first), Some(last), Some((_, point))) = (pending.front(), pending.back(), latest.front()) {
            let blocks = *first..=*last;
            if windows.last().is_none_or(|window| window.blocks != blocks) {
                windows.push(Window { run: at, blocks, last: *point });
            }
        }
        size -= run[start].1.bytes();
        if pending.front() == Some(&start) {
            pending.pop_front();
        }
        if latest.front().is_some_and(|(first, _)| *first == start) {
            latest.pop_front();
        }
    }
    windows
}

/// Returns the pending blocks of every segment that would be idle after their fences have passed.
fn segments_to_come(heap: &HeapCopy) -> Vec<Vec<BlockId>> {
    let waiting = |segment: &Segment| -> Vec<BlockId> {
        heap.blocks.blocks_of(segment).map(|(id, _)| id).filter(|id| heap.last_points.contains_key(id)).collect()
    };
    let segments = heap.blocks.segments.iter();
    let whole = segments.filter(|segment| heap.blocks.blocks_of(segment).all(|block| can_come_free(heap, block)));
    whole.map(waiting).filter(|waiting| !waiting.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cachette_hal::StreamRef;

    use super::*;
    use crate::blocks::{HeapBlocks, HeapBlocksCopy, ReuseGuard};
    use crate::heap::history::Stacks;
    use crate::heap_policy::HeapPolicy;
    use crate::pool::PoolId;

    const MIB: u64 = 1 << 20;

    impl ReuseGuard for () {
        fn covers(&self, (): &Self) -> bool {
            true
        }
    }

    /// A segment of four blocks of 256 KiB, with the fences they wait for; `None` is allocated, zero is free.
    fn heap(points: [Option<u64>; 4]) -> (HeapCopy, Vec<BlockId>) {
        let mut blocks: HeapBlocks<()> = HeapBlocks::default();
        blocks.add_segment(1 << 40, MIB, SegmentKind::Small, 0);
        let ids: Vec<_> = (0..4).map(|_| blocks.allocate(&HeapPolicy::default(), MIB / 4)).collect();
        let mut heap = HeapCopy {
            blocks: HeapBlocksCopy::default(),
            stacks: Stacks::default(),
            stream: StreamRef::DEFAULT,
            pool: PoolId::DEFAULT,
            asleep: false,
            last_points: HashMap::new(),
        };
        blocks.copy_into(&mut heap.blocks);
        for (id, point) in ids.iter().zip(points) {
            let state = &mut heap.blocks.blocks[id.0 as usize].state;
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

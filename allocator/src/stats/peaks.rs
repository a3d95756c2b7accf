//! Peaks over all heaps, exact without a counter that all heaps share.
//!
//! All threads would contend for the cache line of a shared counter. Instead each heap has a limit, and the sum of all
//! limits is at most the peak. While every heap stays within its limit, the sum of their values cannot exceed the
//! peak. A heap that exceeds its limit calls the [`PeakTracker`]:
//!
//! ```text
//! sum over heaps of limit  ≤  peak        for every row and measure
//! ```
//!
//! First the tracker looks for a heap that can give up part of its limit, beginning with the last one that did. It
//! stops as soon as the limit suffices, so streams that take turns pay for a look at one or two heaps. If no heap can
//! give up enough, the tracker adds up all heaps, raises the peak, and distributes new limits.
//!
//! The limit of every heap is at least its highest value so far, if the peak allows that for all heaps. So heaps that
//! rise and fall below an old peak never call the tracker. The limits of a new heap are zero, so it does not change the
//! limits of the others.
//!
//! With thousands of heaps an addition would take long. So heaps beyond the first [`MOST_ACTIVE`] are *parked*: their
//! values are constant and are part of one sum. A change of a parked heap takes the slow path, which ends that.
//!
//! The peaks are exact in any sequence of operations that do not overlap in time. If operations overlap, a peak is a
//! sum of values that were each current during the addition. Only the peak of free parts of segments is a lower
//! bound: a block that is freed and allocated again at once is never listed in between.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::stats::counters::{Counted, Counters, Row};
use crate::stats::{Stat, StatArray};
use crate::sync::Mutex;

/// Counters whose limits are distributed together.
///
/// The peak of a counter is that of its sum with the counters before it in the group. The first counter changes on
/// every call, and gets the whole distance to the peak. The second changes rarely, and gets none.
type Group = [Counted];

const GROUPS: [&Group; 7] = [
    &[Counted::Allocations, Counted::Pending],
    &[Counted::AllocatedBytes, Counted::PendingBytes],
    &[Counted::RequestedBytes],
    &[Counted::InactiveSplit],
    &[Counted::InactiveSplitBytes],
    &[Counted::Segments],
    &[Counted::ReservedBytes],
];

/// The counters whose sum has the peak of `counted`.
fn parts(counted: Counted) -> &'static Group {
    let part = |group: &&'static Group| group.iter().position(|part| *part == counted).map(|last| &group[..=last]);
    GROUPS.iter().find_map(part).unwrap_or_default()
}

/// The rows in which a value of a heap exceeds its limit.
fn passed(group: &Group, heap: &Counters) -> impl Iterator<Item = Row> {
    let mut passed = [false; 3];
    for counted in group {
        for (passed, exceeds) in passed.iter_mut().zip(heap.exceeds(*counted)) {
            *passed |= exceeds;
        }
    }
    Row::EVERY.into_iter().filter(move |row| passed[*row as usize])
}

/// The bytes of a heap that no block uses, and its number; `None` if it has no memory.
fn holder(counters: &Counters) -> Option<(u64, u32)> {
    let [reserved, allocated] = [Counted::ReservedBytes, Counted::AllocatedBytes].map(|of| counters.now(Row::All, of));
    (reserved > 0).then(|| (reserved.saturating_sub(allocated), counters.heap))
}

/// Gives each heap what it needs to reach its previous high, the first heaps first, and the rest of the slack evenly.
fn distribute(group: &Group, row: Row, heaps: &[Arc<Counters>], mut slack: u64) {
    let counted = group[0];
    let missing = |heap: &Arc<Counters>| heap.high(row, counted).saturating_sub(heap.now(row, counted));
    let all: u64 = heaps.iter().map(missing).sum();
    let bonus = slack.saturating_sub(all) / (heaps.len() as u64).max(1);
    for heap in heaps {
        let back = missing(heap).min(slack);
        slack -= back;
        heap.set_limit(row, counted, heap.now(row, counted) + back + bonus);
        for seldom in &group[1..] {
            heap.set_limit(row, *seldom, heap.now(row, *seldom));
        }
    }
}

/// The peak of allocated bytes, and the allocations of the program. Only the peak is lowered by a reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HighestAllocated {
    pub(crate) peak: u64,
    pub(crate) requests: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// The most heaps whose values are added up one by one.
const MOST_ACTIVE: usize = 256;

/// The peaks over a list of heaps.
#[derive(Debug, Default)]
pub(crate) struct PeakTracker(Mutex<PeakState>);

#[derive(Debug, Default)]
struct PeakState {
    /// The heaps that are not parked, the longest active first.
    heaps: Vec<Arc<Counters>>,
    /// The sums over all parked heaps.
    parked: Counters,
    /// The parked heaps that have memory: the bytes that no block uses, and the number.
    holders: BTreeSet<(u64, u32)>,
    /// The position of the heap that gave up part of its limit last.
    donor: usize,
    figures: [[Figure; Counted::COUNT]; 3],
    /// The sums of increases of removed heaps. No sum of values includes theirs.
    retired: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    peak: u64,
    /// The sum of increases at the last reset of totals, and the value at that time.
    reset_total: u64,
    reset_now: u64,
}

impl PeakTracker {
    pub(crate) fn enlist(&self, counters: &Arc<Counters>) {
        self.0.lock().heaps.push(Arc::clone(counters));
    }

    /// Removes a heap. Its increases remain part of the totals.
    pub(crate) fn retire(&self, counters: &Arc<Counters>) {
        let mut state = self.0.lock();
        state.heaps.retain(|heap| !Arc::ptr_eq(heap, counters));
        state.donor = 0;
        state.retired.add(counters, true);
    }

    /// The number of the heap to park next, if there are more than enough.
    pub(crate) fn surplus(&self) -> Option<u32> {
        let state = self.0.lock();
        state.heaps.first().filter(|_| state.heaps.len() > MOST_ACTIVE).map(|heap| heap.heap)
    }

    /// Parks a heap, whose lock the caller holds. Nothing may change its values before [`unpark`](Self::unpark).
    pub(crate) fn park(&self, counters: &Arc<Counters>) {
        self.note(counters);
        let mut state = self.0.lock();
        for (group, row) in GROUPS.into_iter().flat_map(|group| Row::EVERY.map(|row| (group, row))) {
            for counted in group {
                counters.set_limit(row, *counted, counters.now(row, *counted));
            }
        }
        state.heaps.retain(|heap| !Arc::ptr_eq(heap, counters));
        state.donor = 0;
        state.parked.add(counters, true);
        state.holders.extend(holder(counters));
    }

    /// Returns the numbers of all active heaps and of the parked ones that have at least `spare` unused bytes, in order,
    /// and the number of the other parked heaps that have memory.
    pub(crate) fn with_spare(&self, spare: u64) -> (Vec<u32>, usize) {
        let state = self.0.lock();
        let mut numbers: Vec<u32> = state.heaps.iter().map(|heap| heap.heap).collect();
        let active = numbers.len();
        numbers.extend(state.holders.range((spare, 0)..).map(|(_, number)| *number));
        let others = state.holders.len() - (numbers.len() - active);
        numbers.sort_unstable();
        (numbers, others)
    }

    /// Ends the parking of a heap, whose lock the caller holds.
    #[cold]
    pub(crate) fn unpark(&self, counters: &Arc<Counters>) {
        let mut state = self.0.lock();
        state.parked.add(counters, false);
        if let Some(holder) = holder(counters) {
            state.holders.remove(&holder);
        }
        state.heaps.push(Arc::clone(counters));
    }

    /// Looks for new peaks of the measures whose limits a heap exceeds.
    #[cold]
    pub(crate) fn note(&self, heap: &Counters) {
        let mut state = self.0.lock();
        for group in GROUPS {
            for row in passed(group, heap) {
                state.cover(group, row, heap);
            }
        }
        // A block that was freed since the heap passed a limit must not be counted again without a look at the limits.
        heap.distrust_freed_last();
    }

    pub(crate) fn stat(&self, measure: Counted) -> StatArray {
        let mut state = self.0.lock();
        let mut of = |row| {
            state.raise(row, measure);
            state.stat(row, measure)
        };
        StatArray { all: of(Row::All), small_pool: of(Row::Small), large_pool: of(Row::Large) }
    }

    pub(crate) fn now(&self, measure: Counted) -> u64 {
        self.0.lock().sum(Row::All, measure)
    }

    /// Returns the peak of allocated bytes, and the allocations of the program.
    pub(crate) fn highest_allocated(&self) -> HighestAllocated {
        let mut state = self.0.lock();
        state.raise(Row::All, Counted::AllocatedBytes);
        HighestAllocated {
            peak: state.figures[Row::All as usize][Counted::AllocatedBytes as usize].peak,
            requests: state.total(Row::All, Counted::Allocations),
            bytes: state.total(Row::All, Counted::AllocatedBytes),
        }
    }

    pub(crate) fn reset_peaks(&self) {
        let mut state = self.0.lock();
        state.figures.as_flattened_mut().iter_mut().for_each(|figure| figure.peak = 0);
        state.heaps.iter().for_each(|heap| heap.reset_high());
        for (group, row) in GROUPS.into_iter().flat_map(|group| Row::EVERY.map(|row| (group, row))) {
            let mut sums = [0; 2];
            for (sum, counted) in sums.iter_mut().zip(group) {
                *sum = state.all().map(|heap| heap.now(row, *counted)).sum();
            }
            state.deal(group, row, sums, None);
        }
    }

    pub(crate) fn reset_totals(&self) {
        let mut state = self.0.lock();
        for row in Row::EVERY {
            for measure in GROUPS.into_iter().flatten().copied() {
                let (total, now) = (state.total(row, measure), state.sum(row, measure));
                let figure = &mut state.figures[row as usize][measure as usize];
                figure.reset_total = total;
                figure.reset_now = now;
            }
        }
    }
}

impl PeakState {
    /// The counters of every active heap, and the sums of the parked ones.
    fn all(&self) -> impl Iterator<Item = &Counters> {
        self.heaps.iter().map(|heap| &**heap).chain([&self.parked])
    }

    /// Covers the values of a heap by its limits, with what other heaps do not use of theirs. The sum of all limits then
    /// stays the same. If they do not use enough, raises the peaks of the group and distributes the slack below them.
    fn cover(&mut self, group: &Group, row: Row, heap: &Counters) {
        let lends = |donor: &Counters| group.iter().all(|counted| heap.borrow(row, *counted, donor, group[0]));
        // The usual case: streams that take turns.
        if self.heaps.get(self.donor).is_some_and(|donor| lends(donor)) {
            return;
        }
        let (mut sums, mut any_spares) = ([0; 2], false);
        let (before, after) = self.heaps.split_at(self.donor);
        for (step, donor) in after.iter().chain(before).enumerate() {
            if donor.spares(row, group[0]) && lends(donor) {
                self.donor = (self.donor + step) % self.heaps.len();
                return;
            }
            for (sum, counted) in sums.iter_mut().zip(group) {
                *sum += donor.now(row, *counted);
                any_spares |= donor.spares(row, *counted);
            }
        }
        for (sum, counted) in sums.iter_mut().zip(group) {
            *sum += self.parked.now(row, *counted);
        }
        self.deal(group, row, sums, if any_spares { None } else { Some(heap) });
    }

    /// Raises the peaks of a group to the current sums, and distributes the slack below them. If there is none, and all
    /// heaps but `asks` use their limits up, only the limits of this one rise.
    fn deal(&mut self, group: &Group, row: Row, sums: [u64; 2], asks: Option<&Counters>) {
        let (mut sum, mut slack) = (0, u64::MAX);
        for (part, counted) in sums.iter().zip(group) {
            sum += part;
            slack = slack.min(self.raise_to(row, *counted, sum));
        }
        let Some(heap) = asks.filter(|_| slack == 0) else { return distribute(group, row, &self.heaps, slack) };
        for counted in group {
            // The read also records a new high.
            heap.high(row, *counted);
            heap.set_limit(row, *counted, heap.now(row, *counted));
        }
    }

    fn raise(&mut self, row: Row, measure: Counted) {
        let sum = self.sum(row, measure);
        self.raise_to(row, measure, sum);
    }

    /// Raises a peak to a sum. Returns the distance of the sum from the peak.
    fn raise_to(&mut self, row: Row, measure: Counted, sum: u64) -> u64 {
        let peak = &mut self.figures[row as usize][measure as usize].peak;
        *peak = sum.max(*peak);
        *peak - sum
    }

    fn sum(&self, row: Row, measure: Counted) -> u64 {
        let parts = parts(measure);
        self.all().flat_map(|heap| parts.iter().map(|part| heap.now(row, *part))).sum()
    }

    /// The sum of increases. A block is allocated before it becomes active, so only the first part counts.
    fn total(&self, row: Row, measure: Counted) -> u64 {
        let counted = parts(measure)[0];
        self.all().chain([&self.retired]).map(|heap| heap.total(row, counted)).sum()
    }

    fn stat(&self, row: Row, measure: Counted) -> Stat {
        let figure = self.figures[row as usize][measure as usize];
        let (current, total) = (self.sum(row, measure), self.total(row, measure));
        let allocated = total - figure.reset_total;
        Stat {
            current,
            peak: figure.peak,
            allocated,
            // Increases that are no longer present. Removed heaps were empty.
            freed: (allocated + figure.reset_now).saturating_sub(current),
        }
    }
}

#[cfg(test)]
mod tests;

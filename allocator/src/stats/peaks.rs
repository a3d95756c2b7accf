//! Peaks over all heaps, exact without a counter that all heaps share.
//!
//! All threads would contend for the cache line of a shared counter. Instead each heap has a limit, and the sum of all
//! limits is at most the peak. While every heap stays within its limit, the sum of their values cannot exceed the
//! peak. A heap that exceeds its limit calls the [`PeakTracker`]. The tracker adds up the measures whose limits the
//! heap exceeds, raises their peaks if necessary, and distributes new limits:
//!
//! ```text
//! sum over heaps of limit  ≤  peak        for every row and measure
//! ```
//!
//! The limit of every heap is at least its highest value so far, if the peak allows that for all heaps. So heaps that
//! rise and fall below an old peak never call the tracker. The limits of a new heap are zero, so it does not change the
//! limits of the others.
//!
//! A free does not call the tracker, so an addition reads every heap. It reads one counter per heap, and writes only
//! if another heap must give up part of its limit. In a program at its peak all heaps rise, and none gives up any.
//!
//! The peaks are exact in any sequence of operations that do not overlap in time. If operations overlap, a peak is a
//! sum of values that were each current during the addition. Only the peak of free parts of segments is a lower
//! bound: a block that is freed and allocated again at once is never listed in between.

use std::sync::{Arc, Mutex, PoisonError};

use crate::stats::counters::{Counted, Counters, Row};
use crate::stats::report::{Stat, StatArray};

/// A statistic as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Allocation,
    Segment,
    Active,
    InactiveSplit,
    AllocatedBytes,
    ReservedBytes,
    ActiveBytes,
    InactiveSplitBytes,
    RequestedBytes,
}

impl Measure {
    pub(crate) const EVERY: [Self; 9] = [
        Self::Allocation,
        Self::Segment,
        Self::Active,
        Self::InactiveSplit,
        Self::AllocatedBytes,
        Self::ReservedBytes,
        Self::ActiveBytes,
        Self::InactiveSplitBytes,
        Self::RequestedBytes,
    ];

    /// What it is the sum of; what changes on every call comes first.
    const fn parts(self) -> &'static [Counted] {
        match self {
            Self::Allocation => &[Counted::Allocations],
            Self::Segment => &[Counted::Segments],
            Self::Active => &[Counted::Allocations, Counted::Pending],
            Self::InactiveSplit => &[Counted::InactiveSplit],
            Self::AllocatedBytes => &[Counted::AllocatedBytes],
            Self::ReservedBytes => &[Counted::ReservedBytes],
            Self::ActiveBytes => &[Counted::AllocatedBytes, Counted::PendingBytes],
            Self::InactiveSplitBytes => &[Counted::InactiveSplitBytes],
            Self::RequestedBytes => &[Counted::RequestedBytes],
        }
    }
}

/// Counters that are dealt out together: all that is part of the same sums.
#[derive(Debug)]
struct Group {
    /// Changes on every call, and is dealt the whole distance to the peak.
    often: Counted,
    /// Changes seldom, and is dealt none.
    seldom: Option<Counted>,
    /// The sum of what changes often.
    alone: Measure,
    /// The sum of both.
    both: Option<Measure>,
}

impl Group {
    const fn new(counted: Counted, alone: Measure) -> Self {
        Self { often: counted, seldom: None, alone, both: None }
    }

    /// Whether a heap has gone beyond its share of one of them.
    fn is_passed(&self, row: Row, heap: &Counters) -> bool {
        self.parts().any(|counted| heap.is_beyond(row, counted))
    }

    /// What it has.
    fn parts(&self) -> impl Iterator<Item = Counted> {
        [Some(self.often), self.seldom].into_iter().flatten()
    }

    /// Gives a heap just what it has.
    fn settle(&self, row: Row, heap: &Counters) {
        for counted in self.parts() {
            // The look makes it the highest so far, if it is.
            heap.high(row, counted);
            heap.allow(row, counted, heap.now(row, counted));
        }
    }

    /// Deals out by how much the heaps may rise together: to each what it has had before, and the rest evenly. If
    /// there is not enough for that, the first ones get it.
    fn distribute(&self, row: Row, heaps: &[Arc<Counters>], mut slack: u64) {
        let counted = self.often;
        let missing = |heap: &Counters| {
            let high = heap.high(row, counted);
            high.saturating_sub(heap.now(row, counted))
        };
        let all: u64 = heaps.iter().map(|heap| missing(heap)).sum();
        let bonus = slack.saturating_sub(all) / (heaps.len() as u64).max(1);
        for heap in heaps {
            let now = heap.now(row, counted);
            let back = missing(heap).min(slack);
            slack -= back;
            heap.allow(row, counted, now + back + bonus);
            if let Some(seldom) = self.seldom {
                heap.allow(row, seldom, heap.now(row, seldom));
            }
        }
    }
}

const GROUPS: [Group; 7] = [
    Group {
        often: Counted::Allocations,
        seldom: Some(Counted::Pending),
        alone: Measure::Allocation,
        both: Some(Measure::Active),
    },
    Group {
        often: Counted::AllocatedBytes,
        seldom: Some(Counted::PendingBytes),
        alone: Measure::AllocatedBytes,
        both: Some(Measure::ActiveBytes),
    },
    Group::new(Counted::RequestedBytes, Measure::RequestedBytes),
    Group::new(Counted::InactiveSplit, Measure::InactiveSplit),
    Group::new(Counted::InactiveSplitBytes, Measure::InactiveSplitBytes),
    Group::new(Counted::Segments, Measure::Segment),
    Group::new(Counted::ReservedBytes, Measure::ReservedBytes),
];

/// Peaks, and the heaps they are the peaks of.
#[derive(Debug, Default)]
pub(crate) struct PeakTracker {
    book: Mutex<PeakState>,
}

#[derive(Debug, Default)]
struct PeakState {
    heaps: Vec<Arc<Counters>>,
    figures: [[Figure; 9]; 3],
    /// Sums of increases by heaps that are gone.
    gone: [[u64; Counted::COUNT]; 3],
    /// Blocks that had been handed out when the most bytes were allocated at once.
    handed_out_then: u64,
}

/// The state of one measure in one row.
#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    peak: u64,
    /// The sum of increases when totals were last reset, and the present value then.
    reset_total: u64,
    reset_now: u64,
}

impl PeakTracker {
    /// Adds a heap.
    pub(crate) fn enlist(&self, counters: &Arc<Counters>) {
        self.lock().heaps.push(Arc::clone(counters));
    }

    /// Takes a heap out; what it did is still part of the totals.
    pub(crate) fn retire(&self, counters: &Arc<Counters>) {
        let mut book = self.lock();
        book.heaps.retain(|heap| !Arc::ptr_eq(heap, counters));
        for row in Row::EVERY {
            for counted in COUNTED {
                book.gone[row as usize][counted as usize] += counters.total(row, counted);
            }
        }
    }

    /// Looks for new peaks of what a heap has gone beyond its share of.
    #[cold]
    pub(crate) fn note(&self, heap: &Counters) {
        let mut book = self.lock();
        for group in &GROUPS {
            if Row::EVERY.iter().any(|row| group.is_passed(*row, heap)) {
                book.deal(group, Some(heap));
            }
        }
    }

    /// One statistic in all its rows.
    pub(crate) fn stat(&self, measure: Measure) -> StatArray {
        let mut book = self.lock();
        let mut of = |row| {
            book.raise(row, measure);
            book.stat(row, measure)
        };
        StatArray { all: of(Row::All), small_pool: of(Row::Small), large_pool: of(Row::Large) }
    }

    /// The present value over all rows.
    pub(crate) fn now(&self, measure: Measure) -> u64 {
        self.lock().sum(Row::All, measure)
    }

    /// How often a block was handed out.
    pub(crate) fn allocations(&self) -> u64 {
        self.lock().total(Row::All, Measure::Allocation)
    }

    /// The most bytes that were allocated at once, and how many blocks had been handed out by then.
    pub(crate) fn highest_allocated(&self) -> (u64, u64) {
        let mut book = self.lock();
        book.raise(Row::All, Measure::AllocatedBytes);
        let figure = book.figures[Row::All as usize][Measure::AllocatedBytes as usize];
        (figure.peak, book.handed_out_then)
    }

    /// Makes every peak the present value.
    pub(crate) fn reset_peaks(&self) {
        let mut book = self.lock();
        for row in Row::EVERY {
            for measure in Measure::EVERY {
                book.figures[row as usize][measure as usize].peak = 0;
            }
            for heap in &book.heaps {
                for counted in COUNTED {
                    heap.reset_high(row, counted);
                }
            }
        }
        for group in &GROUPS {
            book.deal(group, None);
        }
    }

    /// Makes every sum of increases and decreases zero.
    pub(crate) fn reset_totals(&self) {
        let mut book = self.lock();
        for row in Row::EVERY {
            for measure in Measure::EVERY {
                let (total, now) = (book.total(row, measure), book.sum(row, measure));
                let figure = &mut book.figures[row as usize][measure as usize];
                figure.reset_total = total;
                figure.reset_now = now;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PeakState> {
        // Nothing in a book is ever left half-changed, so one that a panic left behind is still true.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every counted thing, in order of its number.
const COUNTED: [Counted; Counted::COUNT] = [
    Counted::Allocations,
    Counted::AllocatedBytes,
    Counted::RequestedBytes,
    Counted::Pending,
    Counted::PendingBytes,
    Counted::InactiveSplit,
    Counted::InactiveSplitBytes,
    Counted::Segments,
    Counted::ReservedBytes,
];

impl PeakState {
    /// Raises the peaks of a group to the present sums, and deals out what is left below them: in the rows in which the
    /// heap that `asks` has gone beyond its share, or in all.
    ///
    /// If nothing is left, and no other heap has anything to give up, the limits of the others stay.
    fn deal(&mut self, group: &Group, asks: Option<&Counters>) {
        let (mut often, mut both, mut loose) = ([0; 3], [0; 3], [false; 3]);
        // All rows at once: programs with thousands of streams come here for each new one.
        for heap in &self.heaps {
            let other = !asks.is_some_and(|asks| std::ptr::eq(asks, &raw const **heap));
            let (now, limit) = (heap.rows(group.often), heap.limits(group.often));
            for row in 0..3 {
                often[row] += now[row];
                both[row] += now[row];
                loose[row] |= other && limit[row] > now[row];
            }
            if let Some(seldom) = group.seldom {
                let (now, limit) = (heap.rows(seldom), heap.limits(seldom));
                for row in 0..3 {
                    both[row] += now[row];
                    loose[row] |= other && limit[row] > now[row];
                }
            }
        }
        for row in Row::EVERY {
            let index = row as usize;
            let mut slack = self.raise_to(row, group.alone, often[index]);
            if let Some(measure) = group.both {
                slack = slack.min(self.raise_to(row, measure, both[index]));
            }
            match asks {
                Some(heap) if !group.is_passed(row, heap) => {}
                Some(heap) if slack == 0 && !loose[index] => group.settle(row, heap),
                _ => group.distribute(row, &self.heaps, slack),
            }
        }
    }

    /// Raises a peak to the present sum.
    fn raise(&mut self, row: Row, measure: Measure) {
        let sum = self.sum(row, measure);
        self.raise_to(row, measure, sum);
    }

    /// Raises a peak to a sum; how far the sum is below it.
    fn raise_to(&mut self, row: Row, measure: Measure, sum: u64) -> u64 {
        let peak = self.figures[row as usize][measure as usize].peak;
        if sum > peak {
            self.figures[row as usize][measure as usize].peak = sum;
            if matches!((row, measure), (Row::All, Measure::AllocatedBytes)) {
                self.handed_out_then = self.total(Row::All, Measure::Allocation);
            }
        }
        peak.saturating_sub(sum)
    }

    fn sum(&self, row: Row, measure: Measure) -> u64 {
        let parts = measure.parts();
        self.heaps.iter().flat_map(|heap| parts.iter().map(|part| heap.now(row, *part))).sum()
    }

    /// The sum of increases. Whatever becomes active was allocated first, so that part alone counts.
    fn total(&self, row: Row, measure: Measure) -> u64 {
        let part = measure.parts()[0];
        let here: u64 = self.heaps.iter().map(|heap| heap.total(row, part)).sum();
        here + self.gone[row as usize][part as usize]
    }

    fn stat(&self, row: Row, measure: Measure) -> Stat {
        let figure = self.figures[row as usize][measure as usize];
        let (current, total) = (self.sum(row, measure), self.total(row, measure));
        let allocated = total - figure.reset_total;
        Stat {
            current,
            peak: figure.peak,
            allocated,
            // What came in and is not here any more; heaps that went empty-handed took nothing along.
            freed: (allocated + figure.reset_now).saturating_sub(current),
        }
    }
}

#[cfg(test)]
mod tests;

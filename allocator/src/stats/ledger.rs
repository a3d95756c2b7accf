//! Peaks over all heaps, exact without a counter that all heaps share.
//!
//! A shared counter would be the one cache line that every thread fights for. Instead each heap gets a limit,
//! and all limits together are no more than the peak: as long as every heap stays within its limit, the sum
//! cannot have passed the peak. A heap that goes beyond asks the ledger, which adds up, raises the peak if need
//! be, and deals out anew:
//!
//! ```text
//! sum over heaps of limit  ≤  peak        for every row and measure
//! ```
//!
//! Every heap gets what it has had before, if there is enough for all, so that heaps which rise and fall below
//! an old peak never ask.
//!
//! In any sequence of operations that do not overlap in time the peaks are exact. Where they do overlap, a
//! peak is a sum of values each of which was current during the addition. Only the peak of free parts of segments
//! is a lower bound: a block that is freed and taken again at once was never listed in between.

use std::sync::{Arc, Mutex, PoisonError};

use super::counters::{Counted, Counters, Row};
use super::report::{Stat, StatArray};

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

    /// What it is the sum of; what changes on every call comes first, and is dealt the whole distance.
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

/// Peaks, and the heaps they are the peaks of.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    heaps: Vec<Arc<Counters>>,
    figures: [[Figure; 9]; 3],
    /// Sums of increases by heaps that are gone.
    gone: [[u64; Counted::COUNT]; 3],
    /// Blocks that had been handed out when the most bytes were allocated at once.
    handed_out_then: u64,
}

/// What the ledger knows of one measure in one row.
#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    peak: u64,
    /// The sum of increases when totals were last reset, and the present value then.
    reset_total: u64,
    reset_now: u64,
}

impl Ledger {
    /// Adds a heap.
    pub(crate) fn enlist(&self, counters: &Arc<Counters>) {
        let mut book = self.lock();
        book.heaps.push(Arc::clone(counters));
        book.deal();
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
        book.deal();
    }

    /// Looks for new peaks of everything.
    #[cold]
    pub(crate) fn note(&self) {
        self.lock().deal();
    }

    /// Looks for new peaks of what an allocation changes; called when one has left its share.
    #[cold]
    pub(crate) fn note_allocation(&self) {
        let mut book = self.lock();
        for row in Row::EVERY {
            book.deal_allocations(row);
        }
    }

    /// One statistic in all its rows.
    pub(crate) fn stat(&self, measure: Measure) -> StatArray {
        let mut book = self.lock();
        book.deal();
        let of = |row| book.stat(row, measure);
        StatArray {
            all: of(Row::All),
            small_pool: of(Row::Small),
            large_pool: of(Row::Large),
        }
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
        book.deal_allocations(Row::All);
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
        book.deal();
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Book> {
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

impl Book {
    /// Raises the peaks to the present sums, and deals out what is left below them.
    fn deal(&mut self) {
        self.note_crest();
        for row in Row::EVERY {
            // A counter may be part of two measures, and then may rise by the smaller distance of the two.
            let mut slacks = [u64::MAX; Counted::COUNT];
            for measure in Measure::EVERY {
                let sum = self.sum(row, measure);
                let figure = &mut self.figures[row as usize][measure as usize];
                figure.peak = figure.peak.max(sum);
                let (often, seldom) = measure.parts().split_at(1);
                let slack = &mut slacks[often[0] as usize];
                *slack = (figure.peak - sum).min(*slack);
                for part in seldom {
                    slacks[*part as usize] = 0;
                }
            }
            for counted in COUNTED {
                self.distribute(row, counted, slacks[counted as usize]);
            }
        }
    }

    /// Does the same for one row of what an allocation changes. Streams that take turns at the peak come here
    /// every time, so it does no more than it must.
    fn deal_allocations(&mut self, row: Row) {
        if matches!(row, Row::All) {
            self.note_crest();
        }
        let [mut count, mut bytes, mut requested] = [0_u64; 3];
        let [mut pending, mut pending_bytes] = [0_u64; 2];
        for heap in &self.heaps {
            count += heap.now(row, Counted::Allocations);
            bytes += heap.now(row, Counted::AllocatedBytes);
            requested += heap.now(row, Counted::RequestedBytes);
            pending += heap.now(row, Counted::Pending);
            pending_bytes += heap.now(row, Counted::PendingBytes);
        }
        let figures = &mut self.figures[row as usize];
        let mut raise = |measure: Measure, sum: u64| {
            let figure = &mut figures[measure as usize];
            figure.peak = figure.peak.max(sum);
            figure.peak - sum
        };
        let active = raise(Measure::Active, count + pending);
        let count = raise(Measure::Allocation, count).min(active);
        let active = raise(Measure::ActiveBytes, bytes + pending_bytes);
        let bytes = raise(Measure::AllocatedBytes, bytes).min(active);
        let requested = raise(Measure::RequestedBytes, requested);
        self.distribute(row, Counted::Allocations, count);
        self.distribute(row, Counted::AllocatedBytes, bytes);
        self.distribute(row, Counted::RequestedBytes, requested);
    }

    /// Notes how many blocks had been handed out, if more bytes are allocated than ever.
    fn note_crest(&mut self) {
        let measure = Measure::AllocatedBytes;
        let peak = self.figures[Row::All as usize][measure as usize].peak;
        if self.sum(Row::All, measure) > peak {
            self.handed_out_then = self.total(Row::All, Measure::Allocation);
        }
    }

    /// Deals out by how much the heaps may rise together: to each what it has had before, and the rest evenly. If
    /// there is not enough for that, whoever comes first gets it.
    fn distribute(&self, row: Row, counted: Counted, mut slack: u64) {
        let missing: u64 = self
            .heaps
            .iter()
            .map(|heap| {
                heap.high(row, counted)
                    .saturating_sub(heap.now(row, counted))
            })
            .sum();
        let bonus = slack.saturating_sub(missing) / (self.heaps.len() as u64).max(1);
        for heap in &self.heaps {
            let now = heap.now(row, counted);
            let back = heap.high(row, counted).saturating_sub(now).min(slack);
            slack -= back;
            heap.allow(row, counted, now + back + bonus);
        }
    }

    fn sum(&self, row: Row, measure: Measure) -> u64 {
        let parts = measure.parts();
        self.heaps
            .iter()
            .flat_map(|heap| parts.iter().map(|part| heap.now(row, *part)))
            .sum()
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

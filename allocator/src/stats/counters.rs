//! The counters of one heap.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::blocks::Split;
use crate::size::SegmentKind;

/// The figures that a heap counts. All other statistics derive from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Allocations,
    AllocatedBytes,
    /// Requested bytes, counted until the block is free again.
    RequestedBytes,
    /// Blocks freed by their callers and still used by other streams. With `Allocations`, these are the active blocks.
    Pending,
    /// Bytes of `Pending`. With `AllocatedBytes`, these are the active bytes.
    PendingBytes,
    /// Free blocks that are a part of their segment.
    InactiveSplit,
    InactiveSplitBytes,
    Segments,
    ReservedBytes,
}

impl Counted {
    pub(crate) const COUNT: usize = Self::ReservedBytes as usize + 1;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    All,
    Small,
    Large,
}

impl Row {
    pub(crate) const EVERY: [Self; 3] = [Self::All, Self::Small, Self::Large];
}

impl From<SegmentKind> for Row {
    fn from(kind: SegmentKind) -> Self {
        [Self::Small, Self::Large][kind as usize]
    }
}

/// One counter.
///
/// Only the holder of the heap's lock writes `now` and `total`, so plain loads and stores are enough; they are
/// atomic because the peak tracker reads them without the lock. All accesses are relaxed: no other memory is
/// published through them.
#[derive(Debug, Default)]
struct Cell {
    now: AtomicU64,
    total: AtomicU64,
}

/// The range in which a counter may rise before the peak tracker must run. Only the peak tracker writes it.
#[derive(Debug, Default)]
struct Bound {
    /// While the counter is at or below this value, no peak of the whole device can have been exceeded.
    limit: AtomicU64,
    /// The highest value of the counter that the peak tracker has read.
    high: AtomicU64,
}

/// The counters of one heap, separate for the two kinds of segment; a read adds them up.
///
/// They share no cache line with other data, so that threads of other heaps do not invalidate it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) heap: u32,
    /// The counters of both kinds are adjacent, so that a sum reads one cache line.
    cells: [[Cell; 2]; Counted::COUNT],
    bounds: [[Bound; 3]; Counted::COUNT],
    /// How often the peak tracker has lowered a limit, or looked for a peak of this heap. Only the tracker writes it.
    revisions: AtomicU64,
    /// The value of `revisions` at the last call of [`freed_last`](Self::freed_last), plus one; zero if another block
    /// was allocated since. Only the holder of the heap's lock writes it.
    freed_at: AtomicU64,
}

impl Counters {
    pub(crate) fn of(heap: u32) -> Self {
        Self { heap, ..Self::default() }
    }

    /// Counts an allocated block. Returns `true` if the peak tracker must look for a new peak.
    #[inline(always)]
    pub(crate) fn allocated(&self, kind: SegmentKind, bytes: u64, requested: u64) -> bool {
        self.freed_at.store(0, Relaxed);
        self.put_allocated(kind, bytes, requested);
        let passes = |counted: Counted| self.passes(counted, kind, self.cell(counted, kind).now.load(Relaxed));
        passes(Counted::Allocations) || passes(Counted::AllocatedBytes) || passes(Counted::RequestedBytes)
    }

    /// Counts the block of the last call of [`freed_last`](Self::freed_last), which is allocated again as it is, for a
    /// request of at most the previous bytes. Returns `false`, and counts nothing, if the peak tracker may have to run.
    ///
    /// No counter rises above its value before that call. All of them were within their limits then, or the peak
    /// tracker was about to run.
    #[inline(always)]
    pub(crate) fn allocated_again(&self, kind: SegmentKind, bytes: u64, requested: u64) -> bool {
        let same_limits = self.freed_at.load(Relaxed) == self.revisions.load(Relaxed) + 1;
        if same_limits {
            self.put_allocated(kind, bytes, requested);
        }
        same_limits
    }

    #[inline(always)]
    fn put_allocated(&self, kind: SegmentKind, bytes: u64, requested: u64) {
        for (counted, by) in
            [(Counted::Allocations, 1), (Counted::AllocatedBytes, bytes), (Counted::RequestedBytes, requested)]
        {
            let cell = &self.cells[counted as usize][kind as usize];
            cell.total.store(cell.total.load(Relaxed) + by, Relaxed);
            cell.now.store(cell.now.load(Relaxed) + by, Relaxed);
        }
    }

    /// Counts a block that becomes free at once.
    #[inline(always)]
    pub(crate) fn freed(&self, kind: SegmentKind, bytes: u64, requested: u64) {
        for (counted, by) in
            [(Counted::Allocations, 1), (Counted::AllocatedBytes, bytes), (Counted::RequestedBytes, requested)]
        {
            let now = &self.cells[counted as usize][kind as usize].now;
            now.store(now.load(Relaxed).wrapping_sub(by), Relaxed);
        }
    }

    /// Does the same for the last-freed block, which [`allocated_again`](Self::allocated_again) may count next.
    #[inline(always)]
    pub(crate) fn freed_last(&self, kind: SegmentKind, bytes: u64, requested: u64) {
        self.freed_at.store(self.revisions.load(Relaxed) + 1, Relaxed);
        self.freed(kind, bytes, requested);
    }

    /// Makes the next call of [`allocated_again`](Self::allocated_again) fail, unless a later free precedes it.
    pub(crate) fn distrust_freed_last(&self) {
        self.revisions.store(self.revisions.load(Relaxed) + 1, Relaxed);
    }

    /// Counts an increase. Returns `true` if the peak tracker must look for a new peak.
    #[inline(always)]
    pub(crate) fn raise(&self, counted: Counted, kind: SegmentKind, by: u64) -> bool {
        let cell = self.cell(counted, kind);
        let value = cell.now.load(Relaxed) + by;
        cell.total.store(cell.total.load(Relaxed) + by, Relaxed);
        cell.now.store(value, Relaxed);
        self.passes(counted, kind, value)
    }

    #[inline(always)]
    pub(crate) fn lower(&self, counted: Counted, kind: SegmentKind, by: u64) {
        let now = &self.cells[counted as usize][kind as usize].now;
        now.store(now.load(Relaxed).wrapping_sub(by), Relaxed);
    }

    /// Returns whether the peak tracker must look for a new peak at the current value `value`.
    #[inline(always)]
    fn passes(&self, counted: Counted, kind: SegmentKind, value: u64) -> bool {
        let [small, large] = &self.cells[counted as usize];
        let other = if kind == SegmentKind::Small { large } else { small };
        let sum = value + other.now.load(Relaxed);
        value > self.limit(kind.into(), counted) || sum > self.limit(Row::All, counted)
    }

    /// Sets the totals of the free parts of segments. Returns `true` if the peak tracker must look for a new peak.
    pub(crate) fn set_split(&self, split: [Split; 2]) -> bool {
        let mut peak = false;
        for kind in [SegmentKind::Small, SegmentKind::Large] {
            let Split { blocks, bytes } = split[kind as usize];
            for (counted, value) in [(Counted::InactiveSplit, blocks), (Counted::InactiveSplitBytes, bytes)] {
                let cell = self.cell(counted, kind);
                let more = value.saturating_sub(cell.now.load(Relaxed));
                cell.total.store(cell.total.load(Relaxed) + more, Relaxed);
                cell.now.store(value, Relaxed);
                peak |= self.passes(counted, kind, value);
            }
        }
        peak
    }

    /// Returns how far the free parts of each kind of segment may rise before a peak can be exceeded.
    pub(crate) fn split_watermark(&self) -> [Split; 2] {
        // Both kinds may rise at once, so each gets half of the common margin.
        let of = |kind: SegmentKind, counted: Counted| {
            let now = self.cell(counted, kind).now.load(Relaxed);
            let mine = self.limit(kind.into(), counted).saturating_sub(now);
            let all = self.limit(Row::All, counted);
            now + mine.min(all.saturating_sub(self.now(Row::All, counted)) / 2)
        };
        [SegmentKind::Small, SegmentKind::Large].map(|kind| Split {
            blocks: of(kind, Counted::InactiveSplit),
            bytes: of(kind, Counted::InactiveSplitBytes),
        })
    }

    pub(crate) fn now(&self, row: Row, counted: Counted) -> u64 {
        self.rows(counted, |cell| &cell.now)[row as usize]
    }

    /// Returns whether the value exceeds its limit, in every row.
    pub(crate) fn exceeds(&self, counted: Counted) -> [bool; 3] {
        let now = self.rows(counted, |cell| &cell.now);
        Row::EVERY.map(|row| now[row as usize] > self.limit(row, counted))
    }

    /// Returns whether the value is below its limit.
    pub(crate) fn spares(&self, row: Row, counted: Counted) -> bool {
        self.now(row, counted) < self.limit(row, counted)
    }

    pub(crate) fn total(&self, row: Row, counted: Counted) -> u64 {
        self.rows(counted, |cell| &cell.total)[row as usize]
    }

    #[inline]
    fn rows(&self, counted: Counted, of: impl Fn(&Cell) -> &AtomicU64) -> [u64; 3] {
        let [small, large] = self.cells[counted as usize].each_ref().map(|cell| of(cell).load(Relaxed));
        [small + large, small, large]
    }

    /// The highest value that the peak tracker has read, including this read.
    pub(crate) fn high(&self, row: Row, counted: Counted) -> u64 {
        let high = &self.bounds[counted as usize][row as usize].high;
        let seen = high.load(Relaxed).max(self.now(row, counted));
        high.store(seen, Relaxed);
        seen
    }

    /// Adds the values and the sums of increases of another heap, or subtracts them.
    pub(crate) fn add(&self, other: &Self, adds: bool) {
        for (cell, other) in self.cells.as_flattened().iter().zip(other.cells.as_flattened()) {
            for (sum, part) in [(&cell.now, &other.now), (&cell.total, &other.total)] {
                let part = part.load(Relaxed);
                if adds {
                    sum.fetch_add(part, Relaxed)
                } else {
                    sum.fetch_sub(part, Relaxed)
                };
            }
        }
    }

    pub(crate) fn reset_high(&self) {
        self.bounds.as_flattened().iter().for_each(|bound| bound.high.store(0, Relaxed));
    }

    /// The highest value before the peak tracker must run again.
    #[inline(always)]
    pub(crate) fn limit(&self, row: Row, counted: Counted) -> u64 {
        self.bounds[counted as usize][row as usize].limit.load(Relaxed)
    }

    pub(crate) fn set_limit(&self, row: Row, counted: Counted, limit: u64) {
        let known = &self.bounds[counted as usize][row as usize].limit;
        let before = known.load(Relaxed);
        if limit < before {
            self.distrust_freed_last();
        }
        if limit != before {
            known.store(limit, Relaxed);
        }
    }

    /// Raises the limit by what `donor` does not use of its limit of `from`: to the previous high if that is the same
    /// counter, otherwise to the value. Returns whether the limit covers the value now.
    pub(crate) fn borrow(&self, row: Row, counted: Counted, donor: &Self, from: Counted) -> bool {
        let (now, limit) = (self.now(row, counted), self.limit(row, counted));
        if now <= limit {
            return true;
        }
        // The counter may fall at any time.
        let wanted = if counted == from { self.high(row, counted).max(now) } else { now } - limit;
        let given = donor.limit(row, from).saturating_sub(donor.now(row, from)).min(wanted);
        donor.set_limit(row, from, donor.limit(row, from) - given);
        self.set_limit(row, counted, limit + given);
        now <= limit + given
    }

    #[inline(always)]
    const fn cell(&self, counted: Counted, kind: SegmentKind) -> &Cell {
        &self.cells[counted as usize][kind as usize]
    }
}

//! The figures of pinned memory.

#![forbid(unsafe_code)]

use std::time::Duration;

use crate::stats::Stat;

/// What was done with pinned memory, and what is held.
///
/// Sizes are those of blocks: powers of two. A block is *active* from its allocation until it may serve again, which
/// is later than its free where a stream still used it. Peaks of what is active are kept for every size apart and
/// added up: where sizes had their peaks at different times, that is more than ever was at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedStats {
    /// How often the driver was asked for memory.
    pub num_host_alloc: u64,
    /// How often memory went back to the driver.
    pub num_host_free: u64,
    /// Blocks, active or free.
    pub allocations: Stat,
    /// Their bytes.
    pub allocated_bytes: Stat,
    /// Active blocks.
    pub active_requests: Stat,
    /// Their bytes.
    pub active_bytes: Stat,
    /// Time that making memory took.
    pub host_alloc_time: TimeStat,
    /// Time that giving memory back took.
    pub host_free_time: TimeStat,
}

/// How long calls took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeStat {
    /// Together.
    pub total: u64,
    /// The longest.
    pub max: u64,
    /// The shortest.
    pub min: u64,
    /// How many there were.
    pub count: u64,
}

impl TimeStat {
    /// The mean; zero if there was none.
    #[must_use]
    pub const fn avg(&self) -> u64 {
        match self.total.checked_div(self.count) {
            Some(mean) => mean,
            None => 0,
        }
    }

    fn add(&mut self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.min = if self.count == 0 { took } else { self.min.min(took) };
        self.max = self.max.max(took);
        self.total = self.total.saturating_add(took);
        self.count += 1;
    }
}

/// The active blocks of one size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    now: u64,
    peak: u64,
    /// Sum of all increases since the last reset.
    raised: u64,
    /// Sum of all decreases since then.
    lowered: u64,
}

impl Counts {
    #[inline(always)]
    pub(super) const fn raise(&mut self) {
        self.now += 1;
        self.raised += 1;
        if self.now > self.peak {
            self.peak = self.now;
        }
    }

    #[inline(always)]
    pub(super) const fn lower(&mut self) {
        self.now -= 1;
        self.lowered += 1;
    }

    pub(super) const fn reset_peak(&mut self) {
        self.peak = self.now;
    }

    pub(super) const fn reset_totals(&mut self) {
        self.raised = 0;
        self.lowered = 0;
    }

    /// Adds the figure to `stat`, each block as `weight`.
    pub(super) const fn add_to(&self, stat: &mut Stat, weight: u64) {
        stat.current += self.now * weight;
        stat.peak += self.peak * weight;
        stat.allocated += self.raised * weight;
        stat.freed += self.lowered * weight;
    }
}

/// What concerns the driver; the figures of active blocks are of the buckets.
#[derive(Debug, Default)]
pub(super) struct PinnedTotals(PinnedStats);

impl PinnedTotals {
    /// A call for memory has ended well.
    pub(super) fn made(&mut self, took: Duration) {
        self.0.num_host_alloc += 1;
        self.0.host_alloc_time.add(took);
    }

    /// Memory has gone back.
    pub(super) fn gave_back(&mut self, took: Duration) {
        self.0.num_host_free += 1;
        self.0.host_free_time.add(took);
    }

    /// There is one more block.
    pub(super) fn added(&mut self, bytes: usize) {
        raise(&mut self.0.allocations, 1);
        raise(&mut self.0.allocated_bytes, bytes as u64);
    }

    /// A block is gone.
    pub(super) fn removed(&mut self, bytes: usize) {
        lower(&mut self.0.allocations, 1);
        lower(&mut self.0.allocated_bytes, bytes as u64);
    }

    pub(super) fn reset_peaks(&mut self) {
        for stat in [&mut self.0.allocations, &mut self.0.allocated_bytes] {
            stat.peak = stat.current;
        }
    }

    /// Forgets all sums; what is held stays.
    pub(super) fn reset_totals(&mut self) {
        let kept = |stat: Stat| Stat { allocated: 0, freed: 0, ..stat };
        self.0 = PinnedStats {
            allocations: kept(self.0.allocations),
            allocated_bytes: kept(self.0.allocated_bytes),
            ..PinnedStats::default()
        };
    }

    /// What concerns the driver; nothing is active in it.
    pub(super) const fn stats(&self) -> PinnedStats {
        self.0
    }
}

const fn raise(stat: &mut Stat, by: u64) {
    stat.current += by;
    stat.allocated += by;
    if stat.current > stat.peak {
        stat.peak = stat.current;
    }
}

const fn lower(stat: &mut Stat, by: u64) {
    stat.current -= by;
    stat.freed += by;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n7_times_have_a_sum_a_longest_a_shortest_and_a_mean() {
        let mut time = TimeStat::default();
        assert_eq!(time.avg(), 0);
        for micros in [30, 10, 50] {
            time.add(Duration::from_micros(micros));
        }
        let expected = TimeStat { total: 90, max: 50, min: 10, count: 3 };
        assert_eq!((time, time.avg()), (expected, 30));
    }
}

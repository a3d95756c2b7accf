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
    pub fn avg(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    pub(super) fn add(&mut self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.min = if self.count == 0 { took } else { self.min.min(took) };
        self.max = self.max.max(took);
        self.total = self.total.saturating_add(took);
        self.count += 1;
    }
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

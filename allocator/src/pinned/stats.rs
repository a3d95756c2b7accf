//! The statistics of pinned memory.

#![forbid(unsafe_code)]

use std::time::Duration;

use crate::stats::Stat;

/// The statistics of pinned memory.
///
/// A block is *active* from its allocation until it can be reused, which is after its free if a stream still uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedStats {
    /// The number of allocations by the driver.
    pub num_host_alloc: u64,
    /// The number of frees by the driver.
    pub num_host_free: u64,
    /// Segments from the driver.
    pub allocations: Stat,
    /// Their bytes.
    pub allocated_bytes: Stat,
    /// Active blocks.
    pub active_requests: Stat,
    /// Their bytes.
    pub active_bytes: Stat,
    /// Time of the allocations by the driver.
    pub host_alloc_time: TimeStat,
    /// Time of the frees by the driver.
    pub host_free_time: TimeStat,
}

/// The durations of calls, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeStat {
    /// The sum.
    pub total: u64,
    /// The longest call.
    pub max: u64,
    /// The shortest call.
    pub min: u64,
    /// The number of calls.
    pub count: u64,
}

impl TimeStat {
    /// The mean; zero without calls.
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

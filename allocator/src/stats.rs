//! Statistics: each heap counts, a read adds the counters up, and peaks are exact.

#![forbid(unsafe_code)]

mod counters;
mod outside;
mod peaks;

use std::fmt;

use crate::human::Bytes;

pub(crate) use counters::{Counted, Counters, Row};
pub(crate) use outside::OutsideState;
pub use outside::{OutsideKind, OutsideStats};
pub(crate) use peaks::{HighestAllocated, PeakTracker};

/// One figure over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The current value.
    pub current: u64,
    /// The highest value since the start, or since the last reset of peaks.
    pub peak: u64,
    /// Sum of increases since the start, or since the last reset of totals.
    pub allocated: u64,
    /// Sum of decreases since then.
    pub freed: u64,
}

impl Stat {
    #[inline(always)]
    pub(crate) const fn raise(&mut self, by: u64) {
        self.current += by;
        self.allocated += by;
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    /// Lowers the value. An oversize block that was split is counted once, and its parts may be lowered twice.
    #[inline(always)]
    pub(crate) const fn lower(&mut self, by: u64) {
        self.current = self.current.saturating_sub(by);
        self.freed += by;
    }

    pub(crate) const fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(crate) const fn reset_totals(&mut self) {
        (self.allocated, self.freed) = (0, 0);
    }
}

/// A figure for all blocks, and separately for the two kinds of segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatArray {
    /// Both kinds together.
    pub all: Stat,
    /// Segments of 2 MiB, for blocks of at most 1 MiB.
    pub small_pool: Stat,
    /// All other segments.
    pub large_pool: Stat,
}

/// The statistics of an allocator.
///
/// Block sizes are rounded; `requested_bytes` counts the bytes that callers requested. A block that its caller freed
/// while another stream still uses it is *active* but no longer *allocated*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Allocated blocks.
    pub allocation: StatArray,
    /// Segments obtained from the device.
    pub segment: StatArray,
    /// Blocks that are allocated, or pending for other streams.
    pub active: StatArray,
    /// Free blocks that are only part of their segment, which therefore cannot be released.
    pub inactive_split: StatArray,
    /// Bytes of `allocation`.
    pub allocated_bytes: StatArray,
    /// Bytes of `segment`.
    pub reserved_bytes: StatArray,
    /// Bytes of `active`.
    pub active_bytes: StatArray,
    /// Bytes of `inactive_split`.
    pub inactive_split_bytes: StatArray,
    /// Bytes that callers requested.
    pub requested_bytes: StatArray,
    /// Allocations at least as large as the split limit.
    pub oversize_allocations: Stat,
    /// Segments at least as large as the split limit.
    pub oversize_segments: Stat,
    /// The number of retries after memory was released to the device.
    pub num_alloc_retries: u64,
    /// The number of requests that failed with out-of-memory.
    pub num_ooms: u64,
    /// The number of times an allocation waited for events of other streams.
    pub num_sync_all_streams: u64,
    /// Segments obtained from the device.
    pub num_device_alloc: u64,
    /// Segments released to the device.
    pub num_device_free: u64,
    /// Requests rejected because of the limit, without a call to the device.
    pub num_oom_rejections: u64,
    /// The split limit at the allocator's creation; `u64::MAX` for none.
    pub max_split_size: u64,
    /// The number of pools that were evicted.
    pub num_evictions: u64,
    /// How often other processes were asked for memory.
    pub num_reclaims: u64,
    /// Bytes that became free on the device while they were asked.
    pub reclaimed_bytes: u64,
    /// Bytes that were released because other processes asked.
    pub given_bytes: u64,
}

impl Stats {
    /// The nine arrays with their names, in the order of the table.
    #[must_use]
    pub fn arrays(&self) -> [(&'static str, &StatArray); 9] {
        [
            ("allocated_bytes", &self.allocated_bytes),
            ("active_bytes", &self.active_bytes),
            ("requested_bytes", &self.requested_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("allocation", &self.allocation),
            ("active", &self.active),
            ("segment", &self.segment),
            ("inactive_split", &self.inactive_split),
        ]
    }
}

impl fmt::Display for Stats {
    /// A table with one line per figure. The two kinds of segment are indented below their sum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24}{:>14}{:>14}{:>16}{:>16}", "", "current", "peak", "allocated", "freed")?;
        for (name, array) in self.arrays() {
            let bytes = name.ends_with("bytes");
            line(f, name, &array.all, bytes)?;
            line(f, "  small segments", &array.small_pool, bytes)?;
            line(f, "  large segments", &array.large_pool, bytes)?;
        }
        line(f, "oversize_allocations", &self.oversize_allocations, false)?;
        line(f, "oversize_segments", &self.oversize_segments, false)?;
        write!(
            f,
            "device allocations {}, device frees {}, retries {}, waits for other streams {}, out of memory {}",
            self.num_device_alloc,
            self.num_device_free,
            self.num_alloc_retries,
            self.num_sync_all_streams,
            self.num_ooms,
        )
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, stat: &Stat, bytes: bool) -> fmt::Result {
    let show = |figure: u64| if bytes { Bytes(figure).to_string() } else { figure.to_string() };
    let [current, peak, allocated, freed] = [stat.current, stat.peak, stat.allocated, stat.freed].map(show);
    writeln!(f, "{name:<24}{current:>14}{peak:>14}{allocated:>16}{freed:>16}")
}

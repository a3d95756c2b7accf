//! How a heap rounds requests, and which blocks it allocates and splits for them.

use crate::config::{Config, ConfigBackend, Roundup};
use crate::size::{self, SegmentKind};

/// The settings that decide placement. Every heap has a copy, so that a hit reads no shared data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one setting")]
pub(crate) struct HeapPolicy {
    /// Steps between powers of two, by interval.
    pub(crate) roundup: Roundup,
    /// Whether any interval has more than one step.
    pub(crate) divides: bool,
    /// Size of the segments for medium-sized requests.
    pub(crate) large_segment: u64,
    /// Blocks of this size or more are never split; `u64::MAX` for no limit.
    pub(crate) max_split: u64,
    /// How much larger than the request an unsplittable block may be.
    pub(crate) max_non_split_rounding: u64,
    /// The smallest remainder of a large block that becomes a separate block.
    pub(crate) least_large_rest: u64,
    /// Whether blocks are never split, so that each segment has one block.
    pub(crate) no_split: bool,
    /// Whether each request is a segment of the driver's stream-ordered pool.
    pub(crate) driver_pool: bool,
    /// Whether the age of free blocks is counted for garbage collection.
    pub(crate) ages: bool,
}

impl HeapPolicy {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            divides: config.roundup_divisions().iter().any(|steps| *steps > 1),
            roundup: config.roundup(),
            large_segment: config.large_segment_bytes(),
            max_split: config.max_split_bytes().unwrap_or(u64::MAX),
            max_non_split_rounding: config.max_non_split_rounding_bytes(),
            least_large_rest: size::SMALL_LIMIT + 1,
            no_split: false,
            driver_pool: config.backend() == ConfigBackend::CudaMallocAsync,
            ages: config.gc_threshold().is_some(),
        }
    }

    /// The policy of pinned memory: no block is larger than its request rounded up.
    pub(crate) fn exact() -> Self {
        Self { least_large_rest: size::UNIT, ..Self::of(&Config::default()) }
    }

    /// Returns the policy for one kind of heap. In an elastic heap every block may be split, and blocks have no age.
    pub(crate) fn for_source(&self, elastic: bool) -> Self {
        let mut policy = self.clone();
        if elastic {
            policy.max_split = u64::MAX;
            policy.ages = false;
        }
        policy
    }

    /// Returns the size of the segment that a request of `rounded` bytes needs.
    pub(crate) const fn segment_bytes(&self, rounded: u64) -> u64 {
        if self.driver_pool { rounded } else { size::segment_bytes(rounded, self.large_segment) }
    }

    #[inline]
    pub(crate) fn round(&self, bytes: u64) -> u64 {
        size::round(bytes, if self.divides { self.roundup.divisions(bytes) } else { 0 })
    }

    /// Returns whether a free block of `block` bytes may serve a request of `rounded` bytes.
    ///
    /// Unsplittable blocks serve only requests that nearly fill them.
    #[inline]
    pub(crate) fn admits(&self, rounded: u64, block: u64) -> bool {
        if self.max_split == u64::MAX {
            return true;
        }
        if rounded < self.max_split {
            block < self.max_split
        } else {
            block < rounded.saturating_add(self.max_non_split_rounding)
        }
    }

    /// Returns whether the rest of a block after `rounded` bytes becomes a separate block.
    #[inline]
    pub(crate) fn splits(&self, kind: SegmentKind, rounded: u64, left: u64) -> bool {
        let least = match kind {
            SegmentKind::Small => size::UNIT,
            SegmentKind::Large => self.least_large_rest,
        };
        // Small requests are far below any split limit, so one test covers both kinds.
        left >= least && rounded < self.max_split && !self.no_split
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    impl Default for HeapPolicy {
        fn default() -> Self {
            Self::of(&Config::default())
        }
    }

    #[test]
    fn s13_a_small_request_does_not_get_an_unsplittable_block() {
        let policy = HeapPolicy { max_split: 100 * MIB, ..HeapPolicy::default() };
        assert!(policy.admits(99 * MIB, 99 * MIB));
        assert!(!policy.admits(99 * MIB, 100 * MIB));
    }

    #[test]
    fn s14_a_large_request_must_nearly_fill_an_unsplittable_block() {
        let policy = HeapPolicy { max_split: 100 * MIB, ..HeapPolicy::default() };
        assert!(policy.admits(100 * MIB, 119 * MIB));
        assert!(!policy.admits(100 * MIB, 120 * MIB));
    }

    #[test]
    fn s15_the_remainder_becomes_a_block_if_it_is_worth_one() {
        let policy = HeapPolicy { max_split: 100 * MIB, ..HeapPolicy::default() };
        assert!(policy.splits(SegmentKind::Small, 512, 512));
        assert!(!policy.splits(SegmentKind::Small, 512, 0));
        assert!(!policy.splits(SegmentKind::Large, 20 * MIB, MIB));
        assert!(policy.splits(SegmentKind::Large, 20 * MIB, MIB + 512));
        assert!(!policy.splits(SegmentKind::Large, 100 * MIB, 10 * MIB));
        let whole = HeapPolicy { no_split: true, ..HeapPolicy::default() };
        assert!(!whole.splits(SegmentKind::Small, 512, MIB));
    }
}

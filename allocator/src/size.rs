//! Sizes: how a request is rounded, which kind of segment serves it, and how large that segment is.

pub use cachette_snapshot::SegmentKind;

/// Offsets and sizes of blocks are multiples of this many bytes.
pub(crate) const UNIT: u64 = 512;
/// The largest rounded size that a small segment serves.
pub(crate) const SMALL_LIMIT: u64 = 1 << 20;
pub(crate) const SMALL_SEGMENT: u64 = 2 << 20;
/// Requests of this size or more get a segment as large as the rounded request.
pub(crate) const OWN_SEGMENT: u64 = 10 << 20;
/// The sizes of these segments are rounded up to a multiple of this.
pub(crate) const SEGMENT_ROUNDING: u64 = 2 << 20;
/// The default size of the segments that serve requests between the small limit and [`OWN_SEGMENT`].
pub(crate) const LARGE_SEGMENT: u64 = 20 << 20;
/// Requests of this size or more fail at once.
pub(crate) const TOO_LARGE: u64 = 1 << 60;

/// The kind of segment that serves a request of `rounded` bytes.
pub(crate) const fn kind_of(rounded: u64) -> SegmentKind {
    if rounded <= SMALL_LIMIT { SegmentKind::Small } else { SegmentKind::Large }
}

/// Rounds a request up to whole units, or to one of `divisions` steps between powers of two.
///
/// Divisions of 0 and 1 mean none. Divisions trade memory for fewer distinct sizes.
#[inline]
pub(crate) const fn round(bytes: u64, divisions: u32) -> u64 {
    if divisions > 1 && bytes > UNIT * divisions as u64 {
        round_to_division(bytes, divisions)
    } else {
        whole_units(bytes) * UNIT
    }
}

/// Returns the units of a request of at least one byte, without divisions.
#[inline]
pub(crate) const fn whole_units(bytes: u64) -> u64 {
    // Unlike `div_ceil` this may overflow, but not for requests that are served. It is one addition.
    (bytes + (UNIT - 1)) >> UNIT.trailing_zeros()
}

/// Rounds up to the next of `divisions` even steps between two powers of two.
const fn round_to_division(bytes: u64, divisions: u32) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1_u64 << bytes.ilog2();
    let step = floor >> divisions.ilog2();
    bytes.next_multiple_of(step)
}

/// Returns the size of the segment to request for a block of `rounded` bytes.
pub(crate) const fn segment_bytes(rounded: u64, large_segment: u64) -> u64 {
    if rounded <= SMALL_LIMIT {
        SMALL_SEGMENT
    } else if rounded < OWN_SEGMENT {
        large_segment
    } else {
        rounded.next_multiple_of(SEGMENT_ROUNDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn s1_the_constants_are_those_of_the_reference() {
        assert_eq!(
            (UNIT, SMALL_LIMIT, SMALL_SEGMENT, OWN_SEGMENT, SEGMENT_ROUNDING, LARGE_SEGMENT),
            (512, 1_048_576, 2_097_152, 10_485_760, 2_097_152, 20_971_520)
        );
    }

    #[test]
    fn s4_requests_round_up_to_whole_units() {
        for (bytes, rounded) in [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)] {
            assert_eq!(round(bytes, 0), rounded);
            assert_eq!(round(bytes, 1), rounded);
            assert_eq!(whole_units(bytes) * UNIT, rounded);
        }
    }

    #[test]
    fn s4_divisions_apply_only_above_a_unit_for_each() {
        assert_eq!(round(2048, 4), 2048);
        assert_eq!(round(2000, 4), 2048);
        assert_eq!(round(2049, 4), 2560);
    }

    #[test]
    fn s5_divisions_step_evenly_between_powers_of_two() {
        assert_eq!(round_to_division(1200, 4), 1280);
        assert_eq!(round_to_division(1024, 4), 1024);
        assert_eq!(round(84 * MIB, 4), 96 * MIB);
        assert_eq!(round(84 * MIB, 8), 88 * MIB);
        assert_eq!(round(400 * MIB, 2), 512 * MIB);
    }

    #[test]
    fn s7_the_rounded_size_chooses_the_kind() {
        assert_eq!(kind_of(round(MIB, 0)), SegmentKind::Small);
        assert_eq!(kind_of(round(MIB + 1, 0)), SegmentKind::Large);
    }

    #[test]
    fn s8_segments_are_2_mib_20_mib_or_multiples_of_2_mib() {
        assert_eq!(segment_bytes(512, LARGE_SEGMENT), 2 * MIB);
        assert_eq!(segment_bytes(MIB, LARGE_SEGMENT), 2 * MIB);
        assert_eq!(segment_bytes(MIB + 512, LARGE_SEGMENT), 20 * MIB);
        assert_eq!(segment_bytes(10 * MIB - 512, LARGE_SEGMENT), 20 * MIB);
        assert_eq!(segment_bytes(10 * MIB, LARGE_SEGMENT), 10 * MIB);
        assert_eq!(segment_bytes(10 * MIB + 512, LARGE_SEGMENT), 12 * MIB);
    }

    #[test]
    fn every_rounding_is_a_multiple_of_a_unit_and_never_smaller() {
        for divisions in [0, 2, 4, 8, 16, 64, 256] {
            for shift in 0..40 {
                for nudge in [-1_i64, 0, 1, 77] {
                    let bytes = ((1_i64 << shift) + nudge).max(1).unsigned_abs();
                    let rounded = round(bytes, divisions);
                    assert!(rounded >= bytes && rounded.is_multiple_of(UNIT), "{bytes} {divisions}");
                }
            }
        }
    }
}

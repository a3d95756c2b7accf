//! Size classes, 64 of which are compared at once.

use wide::i8x64;

/// The entries of one [`Classes`].
pub(super) const ENTRIES: usize = 64;

/// The size class of a block. A larger block has the same class or a higher one.
///
/// Each power of two has four classes. The highest is 123.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) struct Class(i8);

impl Class {
    /// The class of no block, below all others.
    pub(super) const NONE: Self = Self(0);

    /// The class of a size in units, which is not zero.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a class is below 124")]
    pub(super) const fn of(units: u32) -> Self {
        let shift = (units | 1).ilog2().saturating_sub(2);
        Self((shift * 4 + (units >> shift)) as i8)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classes(i8x64);

impl Classes {
    /// Finds the entries of this class or a higher one, in order.
    #[inline]
    pub(super) fn at_least(&self, class: Class) -> Entries {
        Entries(!self.0.simd_lt(i8x64::splat(class.0)).to_bitmask())
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Class {
        Class(self.0.as_array()[at])
    }

    #[inline]
    pub(super) fn set(&mut self, at: usize, class: Class) {
        self.0.as_mut_array()[at] = class.0;
    }
}

/// Some of at most 64 entries, in order: one bit each.
pub(super) struct Entries(pub(super) u64);

impl Iterator for Entries {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let at = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_larger_size_has_no_lower_class(small in 1..=u32::MAX, large in 1..=u32::MAX) {
            let (small, large) = (small.min(large), small.max(large));
            prop_assert!(Class::NONE < Class::of(small) && Class::of(small) <= Class::of(large));
        }

        #[test]
        fn a_comparison_finds_the_entries_in_order(known in prop::collection::vec(0..=i8::MAX, ENTRIES), class in 1..=i8::MAX) {
            let mut classes = Classes::default();
            for (at, known) in known.iter().enumerate() {
                classes.set(at, Class(*known));
                prop_assert_eq!(classes.get(at), Class(*known));
            }
            let expected: Vec<_> = (0..ENTRIES).filter(|at| known[*at] >= class).collect();
            prop_assert_eq!(classes.at_least(Class(class)).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn each_power_of_two_has_four_classes() {
        let classes = [1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, u32::MAX].map(|units| Class::of(units).0);
        assert_eq!(classes, [1, 2, 3, 4, 5, 7, 8, 8, 9, 11, 12, 123]);
    }
}

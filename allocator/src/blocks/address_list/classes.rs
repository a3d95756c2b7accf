//! Size classes, compared eight at a time.

/// The entries of one [`Classes`].
pub(super) const ENTRIES: usize = WORDS * 8;
const WORDS: usize = 4;
/// The uppermost bit of each byte.
const UPPERMOST: u64 = 0x8080_8080_8080_8080;

/// The size class of a block. A larger block has the same class or a higher one.
///
/// Each power of two has four classes. The highest is 123, so the uppermost bit of the byte is clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) struct Class(u8);

impl Class {
    /// The class of no block, below all others.
    pub(super) const NONE: Self = Self(0);

    /// The class of a size in grains, which is not zero.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a class is below 124")]
    pub(super) const fn of(units: u32) -> Self {
        let shift = (units | 1).ilog2().saturating_sub(2);
        Self((shift * 4 + (units >> shift)) as u8)
    }
}

/// Compares eight classes at once. The uppermost bit of a byte says whether it is `class` or higher.
#[inline]
fn compare(word: [u8; 8], class: Class) -> u64 {
    // No byte borrows from the next one: each has its uppermost bit set before the subtraction.
    ((u64::from_le_bytes(word) | UPPERMOST) - u64::from(class.0) * 0x0101_0101_0101_0101) & UPPERMOST
}

/// The classes of 32 entries.
///
/// Entry `at` has byte `at / 4` of word `at % 4`. So a comparison leaves one bit in each byte of a word, and the words
/// shifted by their number make up one number with the entries in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classes([[u8; 8]; WORDS]);

impl Classes {
    /// Finds the entries of this class or a higher one, in order.
    #[inline]
    pub(super) fn at_least(&self, class: Class) -> Entries {
        let words = self.0.iter().enumerate();
        Entries(words.fold(0, |bits, (at, word)| bits | compare(*word, class) >> (7 - at)))
    }

    #[inline]
    pub(super) const fn get(&self, at: usize) -> Class {
        Class(self.0[at % WORDS][at / WORDS % 8])
    }

    #[inline]
    pub(super) const fn set(&mut self, at: usize, class: Class) {
        self.0[at % WORDS][at / WORDS % 8] = class.0;
    }
}

/// Some of 32 entries, in order. Bit `at % 4` of byte `at / 4` stands for entry `at`.
pub(super) struct Entries(u64);

impl Iterator for Entries {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit / 8 * WORDS + bit % 8)
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
        fn a_comparison_finds_the_entries_in_order(known in prop::collection::vec(0..128_u8, ENTRIES), class in 1..128_u8) {
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

//! Numbers that look random and are the same for the same seed.

/// A sequence of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, or zero if `end` is zero.
    pub fn below(&mut self, end: usize) -> usize {
        let number = self.number() % (end as u64).max(1);
        usize::try_from(number).unwrap_or(0)
    }

    /// One of some values; `None` if there are none.
    pub fn one_of<'a, T>(&mut self, values: &'a [T]) -> Option<&'a T> {
        let index = self.below(values.len());
        values.get(index)
    }

    /// A range within `length`, mostly a short one.
    pub(crate) fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let most = if self.below(4) == 0 { length } else { 8 };
        let end = start + self.below(most.min(length - start) + 1);
        start..end
    }
}

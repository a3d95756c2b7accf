//! Random numbers that are the same everywhere.

/// A generator that a seed determines.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one part of a run.
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        let mut random = Self(seed ^ part.wrapping_mul(0xA076_1D64_78BD_642F));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("it is below a usize")
    }

    /// True once in `times` on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub(crate) fn of<'a, T>(&mut self, several: &'a [T]) -> &'a T {
        &several[self.below(several.len())]
    }

    /// Where in a list to look; `None` if it is empty.
    pub(crate) fn place<T>(&mut self, list: &[T]) -> Option<usize> {
        (!list.is_empty()).then(|| self.below(list.len()))
    }

    /// The size of a request: mostly small, seldom several MiB.
    pub(crate) fn bytes(&mut self) -> usize {
        1 + match self.below(8) {
            0..=3 => self.below(4 << 10),
            4 | 5 => self.below(300 << 10),
            6 => self.below(1500 << 10),
            _ => self.below(5 << 20),
        }
    }
}

//! Random numbers that every measured allocator is given alike.

/// The generator of all workloads; the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Begins at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    #[inline]
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number, from 0 up to but not including 1.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds exactly")]
    pub const fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// The next number, below `bound`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below a usize")]
    pub const fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }
}

/// Sizes whose logarithm is spread evenly from `2^low` up to `2^high` bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogUniform {
    /// Exponent of the smallest size.
    pub low: f64,
    /// Exponent that no size reaches.
    pub high: f64,
}

impl LogUniform {
    /// From 512 B up to, and not including, 64 MiB.
    pub const TO_64_MIB: Self = Self { low: 9.0, high: 26.0 };
    /// From 512 B up to, and not including, 1 MiB.
    pub const TO_1_MIB: Self = Self { low: 9.0, high: 20.0 };

    /// The next size in bytes.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounding down is the rule, and a power of two is never negative"
    )]
    pub fn draw(self, random: &mut SplitMix64) -> u64 {
        (self.low + (self.high - self.low) * random.unit()).exp2() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_other_programs() {
        let mut random = SplitMix64::new(42);
        let drawn: Vec<u64> = (0..4).map(|_| random.draw()).collect();
        assert_eq!(
            drawn,
            [
                13_679_457_532_755_275_413,
                2_949_826_092_126_892_291,
                5_139_283_748_462_763_858,
                6_349_198_060_258_255_764,
            ]
        );
    }

    #[test]
    fn sizes_stay_inside_their_range() {
        let mut random = SplitMix64::new(7);
        for _ in 0..10_000 {
            let bytes = LogUniform::TO_1_MIB.draw(&mut random);
            assert!((512..1 << 20).contains(&bytes), "{bytes}");
        }
    }
}

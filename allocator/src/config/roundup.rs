//! Into how many steps each power of two is divided when sizes are rounded up.

use std::fmt;

use super::error::{Fault, Problem};
use super::number::whole;
use super::parse::Pair;
use super::{Key, Rule};

/// Intervals of sizes; each holds the sizes from one power of two to the next.
pub(super) const INTERVALS: usize = 16;

/// The logarithm of the size that opens the first interval, 1 MiB.
const FIRST_LOG: u32 = 20;

/// The divisions of every interval; 0 and 1 leave sizes to the ordinary rounding.
///
/// Interval `i` holds the sizes from `2^i` MiB up to twice that; the first also all smaller sizes, the
/// last also all larger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roundup([u32; INTERVALS]);

impl Roundup {
    /// Takes the divisions of each interval.
    pub(super) const fn new(by_interval: [u32; INTERVALS]) -> Self {
        Self(by_interval)
    }

    /// Reads one number for every interval; 0 is not one of those.
    pub(super) fn read(text: &str) -> Option<Self> {
        let divisions = read_divisions(text).filter(|divisions| *divisions > 0)?;
        Some(Self([divisions; INTERVALS]))
    }

    /// Reads a list such as `[64:8,128:4,>:2]`.
    ///
    /// The first interval named passes its divisions to all smaller ones; `>` stands for all above the
    /// one named before it; what is not named stays 0.
    pub(super) fn from_list(pairs: &[Pair]) -> Result<Self, Fault> {
        let key = Key::Roundup;
        let mut divided = [0; INTERVALS];
        let mut named = Vec::new();
        let mut above = 0;
        for Pair { name, value } in pairs {
            let interval = read_interval(&name.text).ok_or_else(|| Fault::invalid(key, name, Rule::Interval))?;
            let divisions =
                read_divisions(&value.text).ok_or_else(|| Fault::invalid(key, value, Rule::IntervalDivisions))?;
            if named.contains(&interval) {
                let entry = name.text.clone();
                return Err(Fault::new(Problem::RepeatedEntry { key, entry }, &name.span));
            }
            match interval {
                Interval::At(i) => {
                    let is_first = named.iter().all(|name| *name == Interval::Above);
                    let from = if is_first { 0 } else { i };
                    divided[from..=i].fill(divisions);
                    above = i + 1;
                }
                Interval::Above => divided[above..].fill(divisions),
            }
            named.push(interval);
        }
        Ok(Self(divided))
    }

    /// The divisions of each interval.
    pub(super) const fn by_interval(&self) -> &[u32; INTERVALS] {
        &self.0
    }

    /// The divisions of the interval that holds `size`.
    pub(crate) fn divisions(&self, size: u64) -> u32 {
        let log = size.checked_ilog2().unwrap_or(0);
        let interval = log.saturating_sub(FIRST_LOG) as usize;
        self.0[interval.min(INTERVALS - 1)]
    }
}

impl fmt::Display for Roundup {
    /// Writes one number where all intervals agree on one, and otherwise a list without what goes unsaid.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0[0];
        let last = self.0[INTERVALS - 1];
        let head = self.0.iter().take_while(|d| **d == first).count();
        if head == INTERVALS && first > 0 {
            return write!(f, "{first}");
        }
        let tail = self.0.iter().rev().take_while(|d| **d == last).count();
        write!(f, "[{}:{first}", 1u64 << (head - 1))?;
        for i in head..INTERVALS - tail {
            if self.0[i] > 0 {
                write!(f, ",{}:{}", 1u64 << i, self.0[i])?;
            }
        }
        // Above the last interval named there may be a gap, which `>` would fill.
        if last > 0 {
            let start = INTERVALS - tail;
            let gap = start > head && self.0[start - 1] == 0;
            if tail == 1 || gap {
                write!(f, ",{}:{last}", 1u64 << start)?;
            }
            if tail > 1 {
                write!(f, ",>:{last}")?;
            }
        }
        f.write_str("]")
    }
}

/// Whether `divisions` can divide a power of two evenly; 0 stands for not dividing it.
pub(super) const fn is_divisions(divisions: u32) -> bool {
    divisions == 0 || divisions.is_power_of_two()
}

/// Reads 0 or a power of two.
fn read_divisions(text: &str) -> Option<u32> {
    let divisions = u32::try_from(whole(text)?).ok()?;
    is_divisions(divisions).then_some(divisions)
}

/// What an entry of a list names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interval {
    /// The interval with this index.
    At(usize),
    /// Every interval above the one named before.
    Above,
}

/// Reads a power of two in MiB, or `>`.
fn read_interval(text: &str) -> Option<Interval> {
    if text == ">" {
        return Some(Interval::Above);
    }
    let start = whole(text).filter(|start| start.is_power_of_two())?;
    let index = start.ilog2() as usize;
    Some(Interval::At(index.min(INTERVALS - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const MIB: u64 = 1 << 20;

    fn config(value: &str) -> Config {
        format!("roundup_power2_divisions:{value}").parse().unwrap()
    }

    /// S6: sixteen intervals from 1 MiB, clamped at both ends.
    #[test]
    fn s6_the_interval_of_a_size_is_its_power_of_two() {
        let mut by_interval = [0; INTERVALS];
        for (i, divisions) in by_interval.iter_mut().enumerate() {
            *divisions = 1 << i;
        }
        let roundup = Roundup::new(by_interval);
        for size in [0, 1, 512, MIB - 1, MIB, 2 * MIB - 1] {
            assert_eq!(roundup.divisions(size), 1, "{size}");
        }
        for i in 0..INTERVALS {
            assert_eq!(roundup.divisions(MIB << i), 1 << i);
            assert_eq!(roundup.divisions((MIB << i) + 1), 1 << i);
        }
        assert_eq!(roundup.divisions((32 << 30) - 1), 1 << 14);
        for size in [32 << 30, 64 << 30, u64::MAX] {
            assert_eq!(roundup.divisions(size), 1 << 15, "{size}");
        }
    }

    /// `AllocatorConfig_test`: the first entry back-fills and `>` fills what follows.
    #[test]
    fn s6_a_list_back_fills_below_and_fills_above() {
        let config = config("[64:8,128:2,256:4,512:2,1024:4,>:1]");
        for (mebibytes, divisions) in
            [(1, 8), (32, 8), (64, 8), (128, 2), (256, 4), (512, 2), (1024, 4), (2048, 1), (4096, 1), (8192, 1)]
        {
            assert_eq!(config.divisions(mebibytes * MIB), divisions, "{mebibytes}");
        }
    }

    /// `AllocatorConfig_test`: an interval between two named ones stays 0.
    #[test]
    fn s6_a_gap_in_a_list_stays_zero() {
        let config = config("[128:8,256:16,512:1,2048:8,>:2]");
        assert_eq!(config.divisions(64 * MIB), 8);
        assert_eq!(config.divisions(256 * MIB), 16);
        assert_eq!(config.divisions(1024 * MIB), 0);
        assert_eq!(config.divisions(2048 * MIB), 8);
        assert_eq!(config.divisions(4096 * MIB), 2);
    }

    #[test]
    fn s6_a_single_number_serves_all_sizes() {
        assert_eq!(config("4").roundup_divisions(), &[4; INTERVALS]);
        assert_eq!(config("[>:4]").roundup_divisions(), &[4; INTERVALS]);
    }

    #[test]
    fn s6_intervals_above_the_last_belong_to_it() {
        assert_eq!(config("[65536:4]").roundup_divisions(), &[4; INTERVALS]);
    }

    #[test]
    fn s6_lists_are_written_short() {
        for text in [
            "4",
            "[64:8,128:2,256:4,512:2,1024:4,>:1]",
            "[128:8,256:16,512:1,2048:8,>:2]",
            "[1:8]",
            "[16384:8]",
            "[16384:0,32768:2]",
            "[1:4,64:2]",
            "[1:4,8192:2,>:1]",
            "[1:4,4096:2,16384:1,>:1]",
        ] {
            let written = config(text).to_string();
            assert_eq!(written, format!("roundup_power2_divisions:{text}"));
        }
    }
}

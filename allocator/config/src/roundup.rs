//! Into how many steps each power of two is divided when sizes are rounded up.

use std::fmt;

use super::error::{ConfigError, shortened};
use super::format::{Format, whole};
use super::parse::Token;

/// Intervals of sizes; each holds the sizes from one power of two to the next.
const INTERVALS: usize = 16;

/// Stands for every interval above the one named before.
const ABOVE: usize = INTERVALS;

/// The logarithm of the size where the first interval begins, 1 MiB.
const FIRST_LOG: u32 = 20;

/// The divisions of every interval; 0 and 1 leave sizes to the ordinary rounding.
///
/// Interval `i` holds the sizes from `2^i` MiB up to twice that. The first interval also holds all smaller sizes, the
/// last one all larger sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roundup(pub(super) [u32; INTERVALS]);

/// One number for every interval, or a list, which [`Roundup::from_list`] reads.
pub(super) const DIVISIONS: Format<Roundup> = Format {
    read: |word| {
        read_divisions(word).filter(|divisions| *divisions > 0).map(|divisions| Roundup([divisions; INTERVALS]))
    },
    write: |roundup| roundup.to_string(),
    allows: |roundup, _| roundup.0.into_iter().all(is_divisions),
    rule: |_| "a power of two up to 2147483648, or a list such as [64:8,128:4,>:2]".into(),
};

impl Roundup {
    /// The key of this value, the only one that accepts a list.
    pub(super) const KEY: &str = "roundup_power2_divisions";

    pub(super) const OFF: Self = Self([0; INTERVALS]);

    /// Reads a list such as `[64:8,128:4,>:2]`.
    ///
    /// The first interval that is named also sets all smaller ones. `>` sets all intervals above the last one named
    /// before it. All others stay 0.
    pub(super) fn from_list(pairs: &[(Token, Token)]) -> Result<Self, ConfigError> {
        let refuse = |token: &Token, rule| ConfigError::not_allowed(Self::KEY, &token.text, rule).at(&token.span);
        let mut divided = [0; INTERVALS];
        let mut named = Vec::new();
        let mut above = 0;
        for (name, value) in pairs {
            let interval = read_interval(&name.text)
                .ok_or_else(|| refuse(name, "a power of two in MiB, or > for all larger sizes"))?;
            let divisions =
                read_divisions(&value.text).ok_or_else(|| refuse(value, "0 or a power of two up to 2147483648"))?;
            if named.contains(&interval) {
                let (key, entry) = (Self::KEY, shortened(&name.text));
                let message = format!("{key}: the list already has an entry for '{entry}'; keep one of them");
                return Err(ConfigError::new(message).at(&name.span));
            }
            if interval == ABOVE {
                divided[above..].fill(divisions);
            } else {
                let from = if named.iter().all(|name| *name == ABOVE) { 0 } else { interval };
                divided[from..=interval].fill(divisions);
                above = interval + 1;
            }
            named.push(interval);
        }
        Ok(Self(divided))
    }

    /// The divisions of the interval that holds a size.
    #[inline]
    #[must_use]
    pub fn divisions(&self, size: u64) -> u32 {
        let log = size.checked_ilog2().unwrap_or(0);
        self.0[(log.saturating_sub(FIRST_LOG) as usize).min(INTERVALS - 1)]
    }
}

impl fmt::Display for Roundup {
    /// Writes one number if all intervals have the same, else the shortest list.
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
        // `>` would also fill a gap of zeros above the last interval named.
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

/// Whether `divisions` divides a power of two evenly; 0 means no division.
const fn is_divisions(divisions: u32) -> bool {
    divisions == 0 || divisions.is_power_of_two()
}

fn read_divisions(text: &str) -> Option<u32> {
    let divisions = u32::try_from(whole(text)?).ok()?;
    is_divisions(divisions).then_some(divisions)
}

/// Reads a power of two in MiB as the index of its interval, or `>` as [`ABOVE`].
fn read_interval(text: &str) -> Option<usize> {
    if text == ">" {
        return Some(ABOVE);
    }
    let start = whole(text).filter(|start| start.is_power_of_two())?;
    Some((start.ilog2() as usize).min(INTERVALS - 1))
}

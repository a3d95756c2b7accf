//! How much address space an expandable segment reserves.

use std::fmt;

use super::number::{decimal, scale, size_text, size_with_unit};

/// The full reserve as a fraction of the device's memory; more is never needed.
const FULL: f64 = 1.125;

/// How much address space an expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AddressReserve {
    /// A fraction of the device's memory, above 0 and up to 1.125.
    Fraction(f64),
    /// A number of bytes, above 0.
    Bytes(u64),
}

impl AddressReserve {
    /// The full reserve of a device with `total` bytes: those and an eighth.
    #[must_use]
    pub const fn full(total: u64) -> u64 {
        total.saturating_add(total / 8)
    }

    /// The bytes to reserve on a device with `total` bytes, never more than [`full`](Self::full).
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        let full = Self::full(total);
        match self {
            Self::Fraction(fraction) => scale(total, fraction).map_or(full, |bytes| bytes.min(full)),
            Self::Bytes(bytes) => bytes.min(full),
        }
    }

    /// Reads `0.5` as a fraction and `40G` as bytes.
    pub(super) fn read(text: &str) -> Option<Self> {
        let reserve = match decimal(text) {
            Some(fraction) => Self::Fraction(fraction),
            None => Self::Bytes(size_with_unit(text)?),
        };
        reserve.is_sound().then_some(reserve)
    }

    /// Whether the value is in its range.
    pub(super) fn is_sound(self) -> bool {
        match self {
            Self::Fraction(fraction) => fraction > 0.0 && fraction <= FULL,
            Self::Bytes(bytes) => bytes > 0,
        }
    }
}

impl fmt::Display for AddressReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(fraction) => write!(f, "{fraction}"),
            Self::Bytes(bytes) => f.write_str(&size_text(*bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 100 << 30;

    /// X2: a fraction is of the device's memory, a unit makes it absolute, and the full reserve caps both.
    #[test]
    fn x2_a_reserve_resolves_against_the_device_and_is_capped() {
        assert_eq!(AddressReserve::Fraction(0.25).bytes(TOTAL), TOTAL / 4);
        assert_eq!(AddressReserve::Bytes(40 << 30).bytes(TOTAL), 40 << 30);
        assert_eq!(AddressReserve::Fraction(1.125).bytes(TOTAL), TOTAL + TOTAL / 8);
        assert_eq!(AddressReserve::Bytes(u64::MAX).bytes(TOTAL), TOTAL + TOTAL / 8);
        assert_eq!(AddressReserve::Bytes(u64::MAX).bytes(u64::MAX), u64::MAX);
        assert_eq!(AddressReserve::Fraction(1.0).bytes(u64::MAX), u64::MAX);
    }

    #[test]
    fn x2_a_reserve_is_read_and_written() {
        for (text, reserve) in [
            ("0.5", AddressReserve::Fraction(0.5)),
            ("1", AddressReserve::Fraction(1.0)),
            ("40G", AddressReserve::Bytes(40 << 30)),
            ("512M", AddressReserve::Bytes(512 << 20)),
            ("1000B", AddressReserve::Bytes(1000)),
        ] {
            assert_eq!(AddressReserve::read(text), Some(reserve), "{text}");
            assert_eq!(reserve.to_string(), text);
        }
        for text in ["", "0", "-1", "40", "G", "0G", "12X", "abc", "inf", "1e20G"] {
            assert_eq!(AddressReserve::read(text), None, "{text}");
        }
    }
}

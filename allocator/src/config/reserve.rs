//! How much address space an expandable segment reserves.

use std::fmt;

use super::format::Format;
use super::number::{decimal, scale, size_text, size_with_unit};

/// How much address space an expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AddressReserve {
    /// A fraction of the device's memory, above 0 and up to 1.125.
    Fraction(f64),
    /// A number of bytes, above 0.
    Bytes(u64),
}

/// `0.5` is a fraction, `40G` is a number of bytes.
pub(super) const RESERVE: Format<AddressReserve> = Format {
    read: |word| match decimal(word) {
        Some(fraction) => Some(AddressReserve::Fraction(fraction)),
        None => size_with_unit(word).map(AddressReserve::Bytes),
    },
    write: |reserve| reserve.to_string(),
    allows: |reserve, _| match reserve {
        AddressReserve::Fraction(fraction) => fraction > 0.0 && fraction <= 1.125,
        AddressReserve::Bytes(bytes) => bytes > 0,
    },
    rule: |_| {
        "a fraction of the device's memory above 0 and up to 1.125, such as 0.5, \
         or a size with K, M or G, such as 40G"
            .into()
    },
};

impl AddressReserve {
    /// The full reserve of a device with `total` bytes: nine eighths of them. No segment needs more.
    #[must_use]
    pub const fn full(total: u64) -> u64 {
        total.saturating_add(total / 8)
    }

    /// The bytes to reserve on a device with `total` bytes, at most [`full`](Self::full).
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        let bytes = match self {
            Self::Fraction(fraction) => scale(total, fraction).unwrap_or(u64::MAX),
            Self::Bytes(bytes) => bytes,
        };
        bytes.min(Self::full(total))
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

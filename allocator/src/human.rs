//! Byte counts in human-readable form.

#![forbid(unsafe_code)]

use std::fmt;

/// A number of bytes, written in a suitable unit.
///
/// Values below 1 KiB are whole bytes. Larger ones have two decimals, in the largest unit of which there is one.
///
/// ```
/// # use cachette::human::Bytes;
/// assert_eq!(Bytes(20 << 20).to_string(), "20.00 MiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "two decimals need far fewer digits than are kept")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        let bytes = self.0;
        if bytes < KIB {
            return f.pad(&format!("{bytes} bytes"));
        }
        let (unit, name) = if bytes < MIB {
            (KIB, "KiB")
        } else if bytes < GIB {
            (MIB, "MiB")
        } else {
            (GIB, "GiB")
        };
        let count = bytes as f64 / unit as f64;
        // `pad`, so that a column of sizes can be aligned.
        f.pad(&format!("{count:.2} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M20: two decimals, and every unit begins at one.
    #[test]
    fn m20_each_unit_begins_at_one() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.00 KiB"),
            (1025, "1.00 KiB"),
            (1536, "1.50 KiB"),
            ((1 << 20) - 1, "1024.00 KiB"),
            (1 << 20, "1.00 MiB"),
            ((1 << 20) + 1, "1.00 MiB"),
            (20 << 20, "20.00 MiB"),
            (1 << 30, "1.00 GiB"),
            ((1 << 30) + 1, "1.00 GiB"),
            (3 << 29, "1.50 GiB"),
            (u64::MAX, "17179869184.00 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_line_up_in_a_column() {
        assert_eq!(format!("{:>12}|", Bytes(2048)), "    2.00 KiB|");
        assert_eq!(format!("{:<12}|", Bytes(7)), "7 bytes     |");
    }
}

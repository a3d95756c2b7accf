//! Sizes as people write them.

use super::format::{decimal, scale, whole};

/// The units, the largest first: the letter, what it means alone or before `iB`, and what it means before `B`.
const UNITS: [(char, u64, u64); 4] = [
    ('T', 1 << 40, 1_000_000_000_000),
    ('G', 1 << 30, 1_000_000_000),
    ('M', 1 << 20, 1_000_000),
    ('K', 1 << 10, 1_000),
];

/// Reads a number of bytes, such as `4096`, `512M`, `1.5G`, `80GiB` or `141GB`.
///
/// `K`, `M`, `G` and `T` are powers of 1024, as in PyTorch, and so are `KiB` to `TiB`. `KB` to `TB` are powers of 1000,
/// as vendors state the memory of a card. Letters may be of either case. A fraction of a byte is dropped.
///
/// ```
/// # use cachette_config::parse_size;
/// assert_eq!(parse_size("1.5G"), Some(3 << 29));
/// assert_eq!(parse_size("80GiB"), Some(80 << 30));
/// assert_eq!(parse_size("141GB"), Some(141_000_000_000));
/// ```
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    whole(text).or_else(|| size_with_unit(text))
}

/// The size that was probably meant by a number without a unit below 2 MiB, which is less than any segment.
///
/// ```
/// # use cachette_config::size_meant;
/// assert_eq!(size_meant("80").as_deref(), Some("80GB"));
/// assert_eq!(size_meant("80B"), None);
/// ```
#[must_use]
pub fn size_meant(text: &str) -> Option<String> {
    let count = whole(text).filter(|count| (1..2 << 20).contains(count))?;
    let unit = if count < 1 << 10 { "GB" } else { "MB" };
    Some(format!("{count}{unit}"))
}

/// Reads a number of bytes that ends in a unit; `512B` is whole bytes.
pub(super) fn size_with_unit(text: &str) -> Option<u64> {
    let letters = text.bytes().rev().take_while(u8::is_ascii_alphabetic).count();
    let (count, unit) = text.split_at(text.len() - letters);
    let unit = unit_bytes(&unit.to_ascii_uppercase())?;
    if let Some(count) = whole(count) {
        return count.checked_mul(unit);
    }
    // `decimal` alone would accept a sign and an exponent.
    let is_decimal = unit > 1 && count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_decimal.then(|| decimal(count)).flatten().and_then(|count| scale(unit, count))
}

/// The bytes of a unit in capital letters.
fn unit_bytes(unit: &str) -> Option<u64> {
    if unit == "B" {
        return Some(1);
    }
    UNITS.into_iter().find_map(|(letter, binary, thousands)| match unit.strip_prefix(letter)? {
        "" | "IB" => Some(binary),
        "B" => Some(thousands),
        _ => None,
    })
}

/// Writes a number of bytes in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let unit = UNITS.into_iter().find(|(_, unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    match unit {
        Some((letter, unit, _)) => format!("{}{letter}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512B", 512),
            ("7K", 7 << 10),
            ("512M", 512 << 20),
            ("1.5g", 3 << 29),
            ("80GiB", 80 << 30),
            ("80gib", 80 << 30),
            ("141GB", 141_000_000_000),
            ("1.5kb", 1500),
            ("2TB", 2_000_000_000_000),
            ("4T", 4 << 40),
            (".5M", 1 << 19),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "GB", "iB", "1.5B", "-1G", "+1G", "1e3G", "1.2.3G", ".G", "80 G", "80GBs", "nanG", "1é"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
        for text in ["18446744073709551616", "17179869184G", "18446744074GB", "99999999.9T"] {
            assert_eq!(parse_size(text), None, "{text} does not fit");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit() {
        for (bytes, text) in [
            (4 << 40, "4T"),
            (40 << 30, "40G"),
            (3 << 29, "1536M"),
            (3072, "3K"),
            (7, "7B"),
            (0, "0B"),
            (u64::MAX, "18446744073709551615B"),
        ] {
            assert_eq!(size_text(bytes), text);
            assert_eq!(size_with_unit(text), Some(bytes));
        }
    }
}

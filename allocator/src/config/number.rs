//! Numbers and sizes as the text form writes them.

/// Bytes in a MiB, the unit of every key that ends in `_mb`.
pub(super) const MEBIBYTE: u64 = 1 << 20;

/// The most MiB of which the bytes can be counted.
pub(super) const MAX_MEBIBYTES: u64 = u64::MAX / MEBIBYTE;

/// The letters that may end a size, the largest first.
const UNITS: [(char, u64); 4] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10), ('B', 1)];

/// Reads digits alone: no sign, and not more than fit.
pub(super) fn whole(text: &str) -> Option<u64> {
    // `parse` would take a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Reads a whole number of MiB as bytes.
pub(super) fn mebibytes(text: &str) -> Option<u64> {
    whole(text)?.checked_mul(MEBIBYTE)
}

/// Writes bytes as a whole number of MiB, and says so where they are not.
pub(super) fn mebibytes_text(bytes: u64) -> String {
    if bytes.is_multiple_of(MEBIBYTE) { (bytes / MEBIBYTE).to_string() } else { format!("{bytes} bytes") }
}

/// Reads a decimal number, never an infinity or a NaN.
pub(super) fn decimal(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Reads a number from 0 that has at most three decimals, as thousandths.
pub(super) fn thousandths(text: &str) -> Option<u64> {
    let (units, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if units.is_empty() || decimals.is_empty() || decimals.len() > 3 {
        return None;
    }
    let decimals = whole(&format!("{decimals:0<3}"))?;
    whole(units)?.checked_mul(1000)?.checked_add(decimals)
}

/// Writes thousandths as a number.
pub(super) fn thousandths_text(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reads a number of bytes that ends in a unit, such as `40G`, `1.5g` or `512B`.
pub(super) fn size_with_unit(text: &str) -> Option<u64> {
    let last = text.chars().next_back()?.to_ascii_uppercase();
    let (_, unit) = UNITS.iter().find(|(letter, _)| *letter == last)?;
    // Every unit is one byte long.
    let count = &text[..text.len() - 1];
    match whole(count) {
        Some(count) => count.checked_mul(*unit),
        None if *unit == 1 => None,
        None => decimal(count).and_then(|count| scale(*unit, count)),
    }
}

/// Writes a number of bytes in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let (letter, unit) = UNITS.into_iter().find(|(_, unit)| bytes.is_multiple_of(*unit)).unwrap_or(('B', 1));
    format!("{}{letter}", bytes / unit)
}

/// `fraction` of `bytes`, rounded down; `None` where it is negative or more than fits.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction of a size is exact to 53 bits, and the range is checked before narrowing"
)]
pub(super) fn scale(bytes: u64, fraction: f64) -> Option<u64> {
    let scaled = fraction * bytes as f64;
    // `u64::MAX as f64` is 2 to the 64th, the first value that does not fit.
    (scaled >= 0.0 && scaled < u64::MAX as f64).then_some(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_digits_that_fit() {
        assert_eq!(whole("0"), Some(0));
        assert_eq!(whole("18446744073709551615"), Some(u64::MAX));
        for text in ["", "+1", "-1", "1.0", "1e3", "0x10", "18446744073709551616"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn mebibytes_that_overflow_are_refused() {
        assert_eq!(mebibytes("20"), Some(20 << 20));
        assert_eq!(mebibytes(&MAX_MEBIBYTES.to_string()), Some(MAX_MEBIBYTES * MEBIBYTE));
        assert_eq!(mebibytes(&(MAX_MEBIBYTES + 1).to_string()), None);
    }

    #[test]
    fn decimals_are_finite() {
        assert_eq!(decimal("0.5"), Some(0.5));
        assert_eq!(decimal("5e-1"), Some(0.5));
        for text in ["", "inf", "nan", "1e999", "-inf", "0,5", "half"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_take_a_unit_in_either_case() {
        assert_eq!(size_with_unit("40G"), Some(40 << 30));
        assert_eq!(size_with_unit("1.5g"), Some(3 << 29));
        assert_eq!(size_with_unit("3k"), Some(3072));
        assert_eq!(size_with_unit("7B"), Some(7));
        for text in ["", "G", "7", "1.5B", "-1G", "1e20G", "17179869184G", "4T", "1é"] {
            assert_eq!(size_with_unit(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_loses_nothing() {
        for (bytes, text) in
            [(40 << 30, "40G"), (3 << 29, "1536M"), (3072, "3K"), (1025, "1025B"), (u64::MAX, "18446744073709551615B")]
        {
            assert_eq!(size_text(bytes), text);
            assert_eq!(size_with_unit(text), Some(bytes));
        }
    }

    #[test]
    fn scaling_never_wraps() {
        assert_eq!(scale(100 << 30, 0.25), Some(25 << 30));
        assert_eq!(scale(7, 0.5), Some(3));
        assert_eq!(scale(u64::MAX, 1.0), None);
        assert_eq!(scale(1, -0.5), None);
        assert_eq!(scale(1, f64::NAN), None);
    }
}

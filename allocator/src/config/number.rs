//! Numbers and sizes as the text form writes them.

/// Bytes in a MiB, the unit of every key that ends in `_mb`.
pub(super) const MEBIBYTE: u64 = 1 << 20;

/// The largest number of MiB whose bytes fit in a `u64`.
pub(super) const MAX_MEBIBYTES: u64 = u64::MAX / MEBIBYTE;

/// The units of sizes, the largest first.
const UNITS: [(char, u64); 4] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10), ('B', 1)];

/// Reads digits without a sign.
pub(super) fn whole(text: &str) -> Option<u64> {
    // `parse` alone would accept a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Reads a whole number of MiB as bytes.
pub(super) fn mebibytes(text: &str) -> Option<u64> {
    whole(text)?.checked_mul(MEBIBYTE)
}

/// Writes bytes as a whole number of MiB, or as bytes if they are not.
pub(super) fn mebibytes_text(bytes: u64) -> String {
    if bytes.is_multiple_of(MEBIBYTE) { (bytes / MEBIBYTE).to_string() } else { format!("{bytes} bytes") }
}

/// Reads a decimal number; not an infinity or a NaN.
pub(super) fn decimal(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Reads a number with at most three decimals, in thousandths.
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

/// `fraction` of `bytes`, rounded down; `None` if the result is negative or does not fit.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction of a size is exact to 53 bits, and the range is checked before narrowing"
)]
pub(crate) fn scale(bytes: u64, fraction: f64) -> Option<u64> {
    let scaled = fraction * bytes as f64;
    // `u64::MAX as f64` is 2 to the 64th, the first value that does not fit.
    (scaled >= 0.0 && scaled < u64::MAX as f64).then_some(scaled as u64)
}

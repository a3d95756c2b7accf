//! The formats of values: how each is read, written and limited.

use super::size::{parse_size, size_meant, size_text};

/// Bytes in a MiB, the unit of every key that ends in `_mb`.
pub(super) const MEBIBYTE: u64 = 1 << 20;

/// The largest number of MiB whose bytes fit in a `u64`.
pub(super) const MAX_MEBIBYTES: u64 = u64::MAX / MEBIBYTE;

/// How the values of a key are read, written and limited.
///
/// The size of large segments is an argument of `allows` and `rule` because it is the lower bound of some values.
pub(super) struct Format<T> {
    /// Reads a word; `None` if it has another form.
    pub(super) read: fn(&str) -> Option<T>,
    pub(super) write: fn(T) -> String,
    pub(super) allows: fn(T, u64) -> bool,
    /// The allowed values; completes the sentence "use …".
    pub(super) rule: fn(u64) -> String,
}

impl<T> Format<T> {
    /// Writes `value`, unless it is `default` or `None`.
    pub(super) fn text<V: Into<Option<T>> + PartialEq>(&self, value: V, default: &V) -> Option<String> {
        if value == *default { None } else { value.into().map(self.write) }
    }

    /// Whether `value` is allowed; `None` always is.
    pub(super) fn is_allowed(&self, value: impl Into<Option<T>>, large_segment: u64) -> bool {
        value.into().is_none_or(|value| (self.allows)(value, large_segment))
    }
}

/// Only these two spellings, as in PyTorch.
pub(super) const SWITCH: Format<bool> = Format {
    read: |word| match word {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    },
    write: |on| if on { "True" } else { "False" }.into(),
    allows: |_, _| true,
    rule: |_| "True or False".into(),
};

/// A whole number of MiB, at least `LEAST`.
pub(super) const fn mebibytes_from<const LEAST: u64>() -> Format<u64> {
    Format {
        read: mebibytes,
        write: mebibytes_text,
        allows: |bytes, _| is_mebibytes(bytes, LEAST * MEBIBYTE),
        rule: |_| mebibytes_rule(LEAST * MEBIBYTE),
    }
}

/// A whole number of MiB, at least the size of large segments.
pub(super) const MEBIBYTES_FROM_LARGE_SEGMENT: Format<u64> =
    Format { read: mebibytes, write: mebibytes_text, allows: is_mebibytes, rule: mebibytes_rule };

fn is_mebibytes(bytes: u64, least: u64) -> bool {
    bytes.is_multiple_of(MEBIBYTE) && bytes / MEBIBYTE >= least / MEBIBYTE
}

fn mebibytes_rule(least: u64) -> String {
    format!("a whole number of MiB from {} to {MAX_MEBIBYTES}", least / MEBIBYTE)
}

pub(super) const OPEN_FRACTION: Format<f64> = Format {
    read: decimal,
    write: |fraction| fraction.to_string(),
    allows: |fraction, _| fraction > 0.0 && fraction < 1.0,
    rule: |_| "a number above 0 and below 1, such as 0.8".into(),
};

pub(super) const CLOSED_FRACTION: Format<f64> = Format {
    read: decimal,
    write: |fraction| fraction.to_string(),
    allows: |fraction, _| (0.0..=1.0).contains(&fraction),
    rule: |_| "a number from 0 to 1, such as 0.5".into(),
};

pub(super) const THREADS: Format<u32> = Format {
    read: |word| whole(word)?.try_into().ok(),
    write: |threads| threads.to_string(),
    allows: |threads, _| threads.is_power_of_two() && threads <= 128,
    rule: |_| "a power of two from 1 to 128".into(),
};

/// A number of bytes with a unit, or at least 2 MiB.
pub(super) const SIZE: Format<u64> = Format {
    read: |word| parse_size(word).filter(|_| size_meant(word).is_none()),
    write: size_text,
    allows: |bytes, _| bytes > 0,
    rule: |_| "a size above 0, in bytes or with a unit, such as 40G or 80GiB".into(),
};

/// A time in seconds, at most a day.
pub(super) const SECONDS: Format<f64> = Format {
    read: decimal,
    write: |seconds| seconds.to_string(),
    allows: |seconds, _| seconds > 0.0 && seconds <= 86_400.0,
    rule: |_| "a number of seconds above 0 and up to 86400, such as 2.5".into(),
};

/// Reads digits without a sign.
pub(super) fn whole(text: &str) -> Option<u64> {
    // `parse` alone would accept a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

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

/// `fraction` of `bytes`, rounded down; `None` if the result is negative or does not fit.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction of a size is exact to 53 bits, and the range is checked before narrowing"
)]
#[must_use]
pub fn scale(bytes: u64, fraction: f64) -> Option<u64> {
    let scaled = fraction * bytes as f64;
    // `u64::MAX as f64` is 2 to the 64th, the first value that does not fit.
    (scaled >= 0.0 && scaled < u64::MAX as f64).then_some(scaled as u64)
}

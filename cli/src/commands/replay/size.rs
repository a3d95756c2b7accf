//! Sizes in command-line arguments.

/// The letters that may end a size.
const UNITS: [(char, u64); 4] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];

/// Reads bytes, such as `80G` or `4096`; never zero.
pub(in crate::commands) fn bytes(text: &str) -> Result<u64, &'static str> {
    read(text).ok_or("a size is a whole number of bytes above 0, or such a number with K, M, G or T, as in 80G")
}

fn read(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (digits, unit) = match unit {
        Some((letter, unit)) => (text.strip_suffix(*letter)?, *unit),
        None => (text, 1),
    };
    // `parse` would accept a plus sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    count.checked_mul(unit).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_with_a_unit_or_none() {
        assert_eq!(bytes("80G"), Ok(80 << 30));
        assert_eq!(bytes("1T"), Ok(1 << 40));
        assert_eq!(bytes("3M"), Ok(3 << 20));
        assert_eq!(bytes("7K"), Ok(7168));
        assert_eq!(bytes("4096"), Ok(4096));
    }

    #[test]
    fn everything_else_is_refused_with_what_is_allowed() {
        for text in ["", "G", "0", "0G", "-1", "+1", "1.5G", "80g", "80GB", "16777216T", "é"] {
            assert!(bytes(text).unwrap_err().ends_with("as in 80G"), "{text}");
        }
    }
}

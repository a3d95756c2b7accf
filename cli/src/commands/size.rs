//! Sizes in command-line arguments.

use cachette::config::parse_size;

/// Reads bytes, such as `80GB`, `80GiB`, `1.5G` or `4096`; never zero.
pub(super) fn bytes(text: &str) -> Result<u64, &'static str> {
    parse_size(text).filter(|bytes| *bytes > 0).ok_or(
        "a size is a number above 0 with a unit or without: 141GB (powers of 1000), 80GiB, 1.5G or 512M (powers of 1024)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_and_everything_else_says_what_is_allowed() {
        assert_eq!(bytes("141GB"), Ok(141_000_000_000));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        for text in ["", "0", "0G", "0.1B", "-1", "G", "80X"] {
            assert!(bytes(text).unwrap_err().contains("141GB (powers of 1000)"), "{text}");
        }
    }
}

//! Sizes in command-line arguments.

use cachette::config::{parse_size, size_meant};

/// Reads bytes, such as `80GB`, `80GiB`, `1.5G` or `4194304`; never zero.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    if let Some(meant) = size_meant(text) {
        return Err(format!("{text} bytes are less than a segment of 2 MiB; did you mean {meant}? Or write {text}B"));
    }
    parse_size(text).filter(|bytes| *bytes > 0).ok_or_else(|| {
        "a size is a number above 0 with a unit or without: 141GB (powers of 1000), 80GiB, 1.5G or 512M (powers of 1024)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_and_everything_else_says_what_is_allowed() {
        assert_eq!(bytes("141GB"), Ok(141_000_000_000));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        assert_eq!(bytes("80B"), Ok(80));
        assert_eq!(bytes("2097152"), Ok(2 << 20));
        let error = bytes("80").unwrap_err();
        assert_eq!(error, "80 bytes are less than a segment of 2 MiB; did you mean 80GB? Or write 80B");
        for text in ["", "0", "0G", "0.1B", "-1", "G", "80X"] {
            assert!(bytes(text).unwrap_err().contains("141GB (powers of 1000)"), "{text}");
        }
    }
}

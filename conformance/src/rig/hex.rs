//! Tokens and handles as text, for the arguments and answers of children.

use std::fmt::Write;

use crate::failure::{Stop, Verdict, ensure};

pub(crate) fn to_hex(name: &[u8; 64]) -> String {
    name.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn from_hex(text: &str) -> Verdict<[u8; 64]> {
    let mut name = [0; 64];
    ensure!(text.len() == 128 && text.is_ascii(), "no name: {text}")?;
    for (i, byte) in name.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16)
            .map_err(|error| Stop::failed(format!("no name: {error}")))?;
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let name = std::array::from_fn(|i| u8::try_from(i * 3).expect("64 times 3 is a byte"));
        assert_eq!(from_hex(&to_hex(&name)), Ok(name));
        assert!(from_hex("").is_err());
        assert!(from_hex(&"x".repeat(128)).is_err());
    }
}

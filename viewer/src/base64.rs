//! Bytes as text that HTML leaves alone.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding, as browsers read it.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            let sextet = (word >> (18 - 6 * place)) & 63;
            let letter = if place <= group.len() { LETTERS[sextet as usize] } else { b'=' };
            text.push(char::from(letter));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn every_length_of_the_last_group_is_padded() {
        let words = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let texts = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (word, text) in words.iter().zip(texts) {
            assert_eq!(encode(word.as_bytes()), text);
        }
    }

    #[test]
    fn only_letters_that_html_leaves_alone_appear() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = encode(&bytes);
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)));
    }
}

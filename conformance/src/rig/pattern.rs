//! Content that differs at every position.

/// The period of the content in bytes, except for the word at the start of every line.
const PAGE: usize = 4096;
/// Bytes of a line; its first eight bytes depend on its position.
const LINE: usize = 512;

/// Returns bytes that depend on the seed and on their position, so that a misplaced byte is detected.
pub(crate) fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let length = usize::try_from(bytes).expect("sizes of cases fit the host");
    let mut page = vec![0; PAGE];
    for (at, word) in (0..).zip(page.chunks_exact_mut(8)) {
        word.copy_from_slice(&mix(seed ^ (at << 20)).to_le_bytes());
    }
    let mut content = page.repeat(length.div_ceil(PAGE));
    for (at, line) in (0..).zip(content.chunks_exact_mut(LINE)) {
        line[..8].copy_from_slice(&mix(seed ^ (at << 32)).to_le_bytes());
    }
    content.truncate(length);
    content
}

/// The finaliser of `SplitMix64`.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_by_seed_and_by_place_and_repeat() {
        assert_eq!(pattern(1, 37).len(), 37);
        assert_eq!(pattern(1, 64), pattern(1, 64));
        assert_ne!(pattern(1, 64), pattern(2, 64));
        assert_ne!(pattern(1, 64)[..32], pattern(1, 64)[32..]);
        let long = pattern(1, 64 << 10);
        assert_ne!(long[..LINE], long[PAGE..PAGE + LINE]);
        assert_eq!(long[..100], pattern(1, 100));
    }
}

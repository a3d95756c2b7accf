//! Ways to damage a file.

use std::ops::Range;

use fastrand::Rng;

/// Numbers at which lengths, counts and offsets go wrong.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0xFFFF,
    0x1_0000,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    1 << 32,
    1 << 40,
    i64::MAX.cast_unsigned(),
    1 << 63,
    u64::MAX,
];

/// Nothing is made longer than this.
const LONGEST: usize = 1 << 16;

/// A damaged copy of one of the `files`; `words` are tokens of their format.
#[must_use]
pub fn mutate(random: &mut Rng, files: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = random.choice(files).cloned().unwrap_or_default();
    for _ in 0..=random.usize(..4) {
        damage(random, &mut bytes, files, words);
        bytes.truncate(LONGEST);
    }
    bytes
}

fn damage(random: &mut Rng, bytes: &mut Vec<u8>, files: &[Vec<u8>], words: &[&[u8]]) {
    let place = below(random, bytes.len());
    match random.usize(..11) {
        // One bit is another.
        0 => change(bytes, place, |byte| byte ^ (1 << random.usize(..8))),
        // One byte is another.
        1 => change(bytes, place, |_| random.u8(..)),
        // Bytes come in between.
        2 => {
            let more: Vec<u8> = (0..random.usize(1..=8)).map(|_| random.u8(..)).collect();
            bytes.splice(place..place, more);
        }
        // Bytes are missing.
        3 => drop(bytes.drain(range(random, bytes.len()))),
        // The file ends early.
        4 => bytes.truncate(place),
        // A part is there twice, or many times.
        5 => {
            let range = range(random, bytes.len());
            let times = if random.usize(..8) == 0 { 64 } else { 1 };
            let again = bytes[range.clone()].repeat(times);
            bytes.splice(range.end..range.end, again);
        }
        // It goes on as another file does.
        6 => {
            let other = random.choice(files).cloned().unwrap_or_default();
            let from = random.usize(..=other.len());
            bytes.truncate(place);
            bytes.extend(&other[from..]);
        }
        // A part of another file lies in it.
        7 => {
            let other = random.choice(files).cloned().unwrap_or_default();
            let range = range(random, other.len());
            bytes.splice(place..place, other[range].iter().copied());
        }
        // A number in binary, such as a length, is another.
        8 => {
            let number = edge(random, bytes.len()).to_le_bytes();
            let width = 1 << random.usize(..4);
            for (byte, new) in bytes.iter_mut().skip(place).zip(&number[..width]) {
                *byte = *new;
            }
        }
        // A number in decimal is another.
        9 => {
            let digits = digits_near(bytes, place);
            let mut text = edge(random, bytes.len()).to_string();
            if random.usize(..4) == 0 {
                text.insert(0, '-');
            }
            bytes.splice(digits, text.into_bytes());
        }
        // A word of the format lies in it.
        _ => {
            let word = random.choice(words).copied().unwrap_or_default();
            bytes.splice(place..place, word.iter().copied());
        }
    }
}

/// A number below `end`, or zero if `end` is zero.
fn below(random: &mut Rng, end: usize) -> usize {
    random.usize(..end.max(1))
}

/// A range within `length`, usually a short one.
fn range(random: &mut Rng, length: usize) -> Range<usize> {
    let start = random.usize(..=length);
    let longest = if random.usize(..4) == 0 { length } else { 8 };
    start..start + random.usize(..=longest.min(length - start))
}

fn change(bytes: &mut [u8], place: usize, new: impl FnOnce(u8) -> u8) {
    if let Some(byte) = bytes.get_mut(place) {
        *byte = new(*byte);
    }
}

/// A number at or near an edge.
fn edge(random: &mut Rng, length: usize) -> u64 {
    let edge = match random.usize(..8) {
        0 => length as u64,
        1 => random.u64(..),
        _ => random.choice(&EDGES).copied().unwrap_or(0),
    };
    edge.wrapping_add(random.u64(..3)).wrapping_sub(1)
}

/// The first digits from a place on; the place itself if there are none.
fn digits_near(bytes: &[u8], place: usize) -> Range<usize> {
    let rest = bytes.get(place..).unwrap_or_default();
    let Some(start) = rest.iter().position(u8::is_ascii_digit) else { return place..place };
    let digits = rest[start..].iter().take_while(|byte| byte.is_ascii_digit());
    place + start..place + start + digits.count()
}

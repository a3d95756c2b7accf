//! Strings in both directions.

use std::ffi::{CStr, c_char};

use crate::failure::Failure;
use crate::given::out;

/// A text that C gives; `None` for null.
///
/// # Safety
///
/// Promise 3 of the crate, for as long as the text is used.
pub(crate) unsafe fn optional<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: 3. is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|error| {
        let at = error.valid_up_to();
        Failure::argument(format!("`{name}` is not UTF-8 from its byte {at} on; pass UTF-8"))
    })
}

/// A text that C must give.
///
/// # Safety
///
/// As for [`optional`].
pub(crate) unsafe fn required<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise is passed on unchanged.
    unsafe { optional(text, name) }?.ok_or_else(|| Failure::null(name))
}

/// Writes `text` and a final zero into a buffer, and says how many bytes that needs.
///
/// A null buffer of no bytes only asks. One that is too small gets an empty text, if anything.
///
/// # Safety
///
/// Promise 2 of the crate.
pub(crate) unsafe fn write(
    text: &str,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: 2. is the caller's promise.
    let needed = unsafe { out(needed, 0, "out_needed") }?;
    *needed = text.len() + 1;
    if buffer.is_null() {
        return match capacity {
            0 => Ok(()),
            _ => Err(Failure::null("buffer")),
        };
    }
    if capacity == 0 {
        return Err(Failure::too_small(capacity, *needed));
    }
    let buffer = buffer.cast::<u8>();
    let fits = *needed <= capacity;
    let written = if fits { text.as_bytes() } else { &[] };
    // SAFETY: 2. is the caller's promise, and the bytes fit.
    unsafe { buffer.copy_from_nonoverlapping(written.as_ptr(), written.len()) };
    // SAFETY: 2. is the caller's promise, and there is one byte more.
    let end = unsafe { buffer.add(written.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    if fits { Ok(()) } else { Err(Failure::too_small(capacity, *needed)) }
}

/// The beginning of `text` as an array that ends with a zero; cut where a character ends.
pub(crate) fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut length = text.len().min(N - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(&text.as_bytes()[..length]) {
        *to = c_char::from_ne_bytes([*from]);
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_for_its_array_is_cut_between_characters() {
        let cut = array::<4>("aéé").map(|c| c.to_ne_bytes()[0]);
        assert_eq!(cut, [b'a', 0xc3, 0xa9, 0]);
        assert_eq!(array::<4>("é").map(|c| c.to_ne_bytes()[0]), [0xc3, 0xa9, 0, 0]);
    }
}

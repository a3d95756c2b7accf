//! Strings in both directions.

use std::ffi::{CStr, c_char};

use crate::failure::Failure;
use crate::handle::out;

/// A UTF-8 string, or `None` for null.
///
/// # Safety
///
/// Promise 3 of the crate, for as long as the text is used.
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
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

/// A UTF-8 string; null is an error.
///
/// # Safety
///
/// As for [`optional_text`].
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise is passed on unchanged.
    unsafe { optional_text(text, name) }?.ok_or_else(|| Failure::null(name))
}

/// A buffer of C that a text is written to.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: *mut c_char,
    capacity: usize,
    needed: *mut usize,
}

/// A buffer for a text of at most `capacity` bytes, and where to write how many bytes the text needs.
///
/// # Safety
///
/// Promise 2 of the crate, for as long as the buffer is used.
#[expect(clippy::unnecessary_wraps, reason = "as every kind of `call!`")]
pub(crate) unsafe fn buffer(
    start: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    _: &str,
) -> Result<Buffer, Failure> {
    Ok(Buffer { start, capacity, needed })
}

impl Buffer {
    /// Writes `text` and a final zero, and the number of bytes that needs.
    ///
    /// For a null buffer of no bytes only the number is written. A buffer that is too small gets an empty text.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let Self { start, capacity, needed } = *self;
        // SAFETY: 2. is the promise of the caller of `buffer`.
        let needed = unsafe { out(needed, "out_needed") }?;
        *needed = text.len() + 1;
        if start.is_null() {
            return match capacity {
                0 => Ok(()),
                _ => Err(Failure::null("buffer")),
            };
        }
        if capacity == 0 {
            return Err(Failure::too_small(capacity, *needed));
        }
        let start = start.cast::<u8>();
        let fits = *needed <= capacity;
        let written = if fits { text.as_bytes() } else { &[] };
        // SAFETY: 2. is the promise of the caller of `buffer`, and the bytes fit.
        unsafe { start.copy_from_nonoverlapping(written.as_ptr(), written.len()) };
        // SAFETY: as above, and there is one byte more.
        let end = unsafe { start.add(written.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        if fits { Ok(()) } else { Err(Failure::too_small(capacity, *needed)) }
    }
}

/// `text` as an array that ends with a zero. A text that is too long is cut between characters.
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

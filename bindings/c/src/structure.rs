//! Structures that may grow: how many bytes of one are there is said with it.
//!
//! A program that was compiled with an older header has shorter structures, one with a newer header longer ones. Both
//! work with this library as long as they ask for nothing that it does not have.

use std::mem::MaybeUninit;
use std::slice;

use crate::failure::Failure;

/// A structure that C shares with this library.
pub(crate) trait Structure: Copy {
    /// Its size in its first version: no caller has a shorter one.
    const FIRST_SIZE: usize;
}

/// No structure will ever be as large; a size beyond it was never set.
const MOST_SIZE: usize = 1 << 16;

/// Refuses a null pointer, and a size that no version of the structure had or will have.
pub(crate) fn check<T: Structure>(pointer: *const T, size: usize) -> Result<(), Failure> {
    const { assert!(T::FIRST_SIZE <= size_of::<T>(), "structures only grow") };
    if pointer.is_null() {
        return Err(Failure::null("out"));
    }
    let (least, grain) = (T::FIRST_SIZE, align_of::<T>());
    // Half a field, such as a pointer's first byte, must not be taken for a field.
    if !(least..=MOST_SIZE).contains(&size) || !size.is_multiple_of(grain) {
        return Err(Failure::argument(format!(
            "the structure has {size} bytes, and every version of it has a multiple of {grain} from {least} to \
             {MOST_SIZE}; pass its `sizeof`"
        )));
    }
    Ok(())
}

/// Writes as much of `value` as the caller's structure has; what the caller's has beyond it becomes zero.
///
/// # Safety
///
/// 1. `to` is null or may be written for `size` bytes.
pub(crate) unsafe fn write<T: Structure>(value: &T, to: *mut T, size: usize) -> Result<(), Failure> {
    check(to, size)?;
    let shared = size.min(size_of::<T>());
    let to = to.cast::<u8>();
    let from = (&raw const *value).cast::<u8>();
    // SAFETY: 1. is the caller's promise, and `shared` is no more than either has.
    unsafe { to.copy_from_nonoverlapping(from, shared) };
    // SAFETY: 1. is the caller's promise, and `shared` is at most `size`.
    let rest = unsafe { to.add(shared) };
    // SAFETY: as above: what is left of the `size` bytes.
    unsafe { rest.write_bytes(0, size - shared) };
    Ok(())
}

/// Reads a structure; what a shorter one lacks is zero, and what a longer one has more must be.
///
/// # Safety
///
/// 1. `from` is null or may be read for `size` bytes.
/// 2. Zero is a value of every field of `T`, and so is everything that C can put there.
pub(crate) unsafe fn read<T: Structure>(from: *const T, size: usize) -> Result<T, Failure> {
    check(from, size)?;
    let shared = size.min(size_of::<T>());
    // SAFETY: 1. is the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes[shared..].iter().any(|byte| *byte != 0) {
        let own = size_of::<T>();
        return Err(Failure::argument(format!(
            "the structure has {size} bytes, and something is set beyond the {own} that this library knows; use a \
             library as new as the header, or set nothing that it does not know"
        )));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let to = value.as_mut_ptr().cast::<u8>();
    // SAFETY: both have `shared` bytes, and the value is this function's own.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), shared) };
    // SAFETY: 2. is the caller's promise.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Pair {
        first: u64,
        second: u64,
    }

    impl Structure for Pair {
        const FIRST_SIZE: usize = 8;
    }

    const PAIR: Pair = Pair { first: 1, second: 2 };

    fn written(size: usize) -> Result<[u64; 4], Failure> {
        let mut room = [9; 4];
        // SAFETY: 1. the room is larger than any size below.
        unsafe { write(&PAIR, room.as_mut_ptr().cast(), size) }.map(|()| room)
    }

    fn read_back(room: &[u64; 4], size: usize) -> Result<Pair, Failure> {
        // SAFETY: 1. the room is larger than any size below. 2. any number is one.
        unsafe { read(room.as_ptr().cast::<Pair>(), size) }
    }

    #[test]
    fn an_older_program_gets_what_it_knows_and_nothing_is_written_beyond() {
        assert_eq!(written(8).unwrap(), [1, 9, 9, 9]);
        assert_eq!(written(16).unwrap(), [1, 2, 9, 9]);
    }

    #[test]
    fn a_newer_program_finds_zero_in_what_this_library_does_not_know() {
        assert_eq!(written(24).unwrap(), [1, 2, 0, 9]);
    }

    #[test]
    fn what_an_older_program_does_not_have_is_read_as_zero() {
        let pair = read_back(&[5, 6, 7, 8], 8).unwrap();
        assert_eq!((pair.first, pair.second), (5, 0));
    }

    #[test]
    fn what_this_library_does_not_know_must_be_zero() {
        assert!(read_back(&[5, 6, 0, 8], 24).is_ok());
        let refused = read_back(&[5, 6, 7, 8], 24).unwrap_err();
        let (text, _) = refused.into_parts();
        assert!(text.contains("use a library as new"), "{text}");
    }

    #[test]
    fn a_size_that_no_version_had_is_refused() {
        assert!(written(7).is_err());
        assert!(read_back(&[0; 4], 0).is_err());
        assert!(written(MOST_SIZE + 8).is_err());
        assert!(written(9).is_err() && read_back(&[0; 4], 15).is_err());
        assert!(read_back(&[0; 4], usize::MAX).is_err());
    }
}

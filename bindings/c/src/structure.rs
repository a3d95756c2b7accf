//! Structures that may grow: the caller passes the size of its version.
//!
//! A program that was compiled with an older header has shorter structures, one with a newer header longer ones. Both
//! work with this library as long as they use no field that it does not have.

use std::mem::MaybeUninit;
use std::slice;

use crate::failure::Failure;

/// A structure that C shares with this library.
pub(crate) trait Structure: Copy {
    /// Its size in its first version, so the minimum.
    const FIRST_SIZE: usize;
}

/// A structure that this library reads from C.
///
/// # Safety
///
/// Zero is a value of every field, and so is everything that C can store there.
pub(crate) unsafe trait Readable: Structure {}

/// No version of a structure is larger; a larger size is an uninitialised variable.
const MAX_SIZE: usize = 1 << 16;

/// Makes a structure for C from one of the allocator, field by field.
macro_rules! same_fields {
    ($from:ty => $to:ty { $($field:ident),* $(,)? }) => {
        impl From<$from> for $to {
            fn from(value: $from) -> Self {
                Self { $($field: value.$field.into()),* }
            }
        }
    };
}

pub(crate) use same_fields;

/// Refuses a null pointer, and a size that no version of the structure can have.
fn check<T: Structure>(pointer: *const T, size: usize, name: &str) -> Result<(), Failure> {
    const { assert!(T::FIRST_SIZE <= size_of::<T>(), "structures only grow") };
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    let (min, alignment) = (T::FIRST_SIZE, align_of::<T>());
    // A size that ends inside a field, such as after a pointer's first byte, is refused.
    if !(min..=MAX_SIZE).contains(&size) || !size.is_multiple_of(alignment) {
        return Err(Failure::argument(format!(
            "the structure's size is {size} bytes, and must be a multiple of {alignment} from {min} to {MAX_SIZE}; pass \
             its `sizeof`"
        )));
    }
    Ok(())
}

/// A structure of C that a value is written to.
#[derive(Debug)]
pub(crate) struct StructureOut<T> {
    to: *mut T,
    size: usize,
}

/// An out-pointer to a structure of `size` bytes.
///
/// # Safety
///
/// Promise 2 of the crate, for as long as the result is used.
pub(crate) unsafe fn structure<T: Structure>(to: *mut T, size: usize, name: &str) -> Result<StructureOut<T>, Failure> {
    check(to, size, name)?;
    Ok(StructureOut { to, size })
}

impl<T: Structure> StructureOut<T> {
    /// Writes as many bytes of `value` as the caller's structure has. Sets the remaining bytes there to zero.
    pub(crate) fn write(&self, value: &T) {
        let shared = self.size.min(size_of::<T>());
        let to = self.to.cast::<u8>();
        let from = (&raw const *value).cast::<u8>();
        // SAFETY: 2. is the promise of the caller of `structure`, and `shared` is at most the size of either.
        unsafe { to.copy_from_nonoverlapping(from, shared) };
        // SAFETY: as above, and `shared` is at most `size`.
        let rest = unsafe { to.add(shared) };
        // SAFETY: as above: the rest of the `size` bytes.
        unsafe { rest.write_bytes(0, self.size - shared) };
    }
}

/// Reads a structure of `size` bytes, or `None` for null. Fields that the caller's version lacks are zero; bytes beyond
/// this version must be zero.
///
/// # Safety
///
/// Promise 3 of the crate.
pub(crate) unsafe fn optional_structure<T: Readable>(
    from: *const T,
    size: usize,
    name: &str,
) -> Result<Option<T>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    check(from, size, name)?;
    let shared = size.min(size_of::<T>());
    // SAFETY: 3. is the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes[shared..].iter().any(|byte| *byte != 0) {
        let own = size_of::<T>();
        return Err(Failure::argument(format!(
            "the structure has {size} bytes, and something is set beyond the {own} that this library knows; use a \
             library as new as the header, or set only fields that this library has"
        )));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let to = value.as_mut_ptr().cast::<u8>();
    // SAFETY: both have `shared` bytes, and the value is this function's own.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), shared) };
    // SAFETY: the bytes are zero or from C, so by `Readable` a value.
    Ok(Some(unsafe { value.assume_init() }))
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

    // SAFETY: any number is a value.
    unsafe impl Readable for Pair {}

    const PAIR: Pair = Pair { first: 1, second: 2 };

    fn written(size: usize) -> Result<[u64; 4], Failure> {
        let mut room = [9; 4];
        // SAFETY: 2. the room is larger than any size that is accepted below.
        unsafe { structure(room.as_mut_ptr().cast(), size, "out") }?.write(&PAIR);
        Ok(room)
    }

    fn read_back(room: &[u64; 4], size: usize) -> Result<Pair, Failure> {
        // SAFETY: 3. the room is larger than any size that is accepted below.
        let read = unsafe { optional_structure(room.as_ptr().cast::<Pair>(), size, "pair") };
        read.map(|pair| pair.expect("the pointer is not null"))
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
        assert!(written(MAX_SIZE + 8).is_err());
        assert!(written(9).is_err() && read_back(&[0; 4], 15).is_err());
        assert!(read_back(&[0; 4], usize::MAX).is_err());
    }
}

//! Columns of numbers as bytes, little-endian, in the forms that `page/decode.js` reads.

use serde::Serialize;

/// The largest whole number that a browser's numbers hold exactly.
const LARGEST: u64 = (1 << 53) - 1;

/// Where a column lies among the bytes, and in which form.
#[derive(Debug, Serialize)]
pub(crate) struct Column {
    form: &'static str,
    /// From the first byte after the head.
    offset: usize,
    bytes: usize,
    count: usize,
}

/// Columns one after the other.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    bytes: Vec<u8>,
}

impl Columns {
    /// One byte a number.
    pub(crate) fn octets(&mut self, numbers: impl IntoIterator<Item = u8>) -> Column {
        self.column("octets", numbers, Vec::push)
    }

    /// Eight bytes a number, for those that no browser's number holds.
    pub(crate) fn words(&mut self, numbers: impl IntoIterator<Item = u64>) -> Column {
        self.column("words", numbers, |bytes, number| {
            bytes.extend(number.to_le_bytes());
        })
    }

    /// Seven bits a byte, as many bytes as the number needs; a number that no browser holds becomes the largest it does.
    pub(crate) fn numbers(&mut self, numbers: impl IntoIterator<Item = u64>) -> Column {
        self.column("numbers", numbers, |bytes, number| {
            varint(bytes, number.min(LARGEST));
        })
    }

    /// The difference of each number to the one before, the sign in the lowest bit.
    pub(crate) fn differences(&mut self, numbers: impl IntoIterator<Item = u64>) -> Column {
        let mut before = 0;
        self.column("differences", numbers, |bytes, number| {
            let number = number.min(LARGEST);
            let difference = number.cast_signed() - before;
            before = number.cast_signed();
            varint(bytes, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
        })
    }

    /// All of them.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn column<T>(
        &mut self,
        form: &'static str,
        numbers: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Vec<u8>, T),
    ) -> Column {
        let offset = self.bytes.len();
        let mut count = 0;
        for number in numbers {
            write(&mut self.bytes, number);
            count += 1;
        }
        Column { form, offset, bytes: self.bytes.len() - offset, count }
    }
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        bytes.push(number.to_le_bytes()[0] | 128);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Columns) -> Column) -> (Column, Vec<u8>) {
        let mut columns = Columns::default();
        columns.octets([9]);
        let column = write(&mut columns);
        assert_eq!((column.offset, column.bytes), (1, columns.bytes.len() - 1));
        let bytes = columns.into_bytes().split_off(1);
        (column, bytes)
    }

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        let (column, bytes) = written(|c| c.numbers([0, 127, 128, 300]));
        assert_eq!(bytes, [0, 127, 0x80, 1, 0xAC, 2]);
        assert_eq!(column.count, 4);
    }

    #[test]
    fn a_number_that_no_browser_holds_becomes_the_largest_it_does() {
        let (_, large) = written(|c| c.numbers([u64::MAX]));
        let (_, largest) = written(|c| c.numbers([LARGEST]));
        assert_eq!(large, largest);
    }

    #[test]
    fn differences_have_their_sign_in_the_lowest_bit() {
        let (_, bytes) = written(|c| c.differences([3, 1, 1, 64]));
        assert_eq!(bytes, [6, 3, 0, 126]);
    }

    #[test]
    fn words_are_little_endian() {
        let (_, bytes) = written(|c| c.words([0x7f00_0000_0201]));
        assert_eq!(bytes, [1, 2, 0, 0, 0, 0x7f, 0, 0]);
    }
}

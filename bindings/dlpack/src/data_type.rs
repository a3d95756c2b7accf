//! Types of elements.

use bytemuck::Pod;

use crate::abi::DLDataType;

/// The types by their names in NumPy, with the characters of its array interface.
const NAMED: [(&str, &str, DLDataType); 14] = [
    ("bool", "|b1", of(6, 8)),
    ("int8", "|i1", of(0, 8)),
    ("int16", "<i2", of(0, 16)),
    ("int32", "<i4", of(0, 32)),
    ("int64", "<i8", of(0, 64)),
    ("uint8", "|u1", of(1, 8)),
    ("uint16", "<u2", of(1, 16)),
    ("uint32", "<u4", of(1, 32)),
    ("uint64", "<u8", of(1, 64)),
    ("float16", "<f2", of(2, 16)),
    ("float32", "<f4", of(2, 32)),
    ("float64", "<f8", of(2, 64)),
    ("complex64", "<c8", of(5, 64)),
    ("complex128", "<c16", of(5, 128)),
];
/// It has no characters in the array interface.
const BFLOAT16: (&str, DLDataType) = ("bfloat16", of(4, 16));

const fn of(code: u8, bits: u8) -> DLDataType {
    DLDataType { code, bits, lanes: 1 }
}

/// The type with a name of NumPy, or `bfloat16`.
#[must_use]
pub fn data_type(name: &str) -> Option<DLDataType> {
    if name == BFLOAT16.0 {
        return Some(BFLOAT16.1);
    }
    NAMED.iter().find(|(known, ..)| *known == name).map(|(.., data_type)| *data_type)
}

/// A type in the characters of NumPy's array interface, such as `<f4`; `None` if it has none.
#[must_use]
pub fn type_text(data_type: DLDataType) -> Option<&'static str> {
    NAMED.iter().find(|(.., known)| *known == data_type).map(|(_, text, _)| *text)
}

impl DLDataType {
    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        (self.bits as u64 * self.lanes as u64).div_ceil(8)
    }
}

/// A type of Rust with a DLPack type of the same size.
pub trait Element: Pod + Send + sealed::Sealed {
    /// The DLPack type.
    const DATA_TYPE: DLDataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($code:literal: $($type:ty)*;)*) => {
        $($(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                #[expect(clippy::cast_possible_truncation, reason = "no number has more than 64 bits")]
                const DATA_TYPE: DLDataType = of($code, 8 * size_of::<$type>() as u8);
            }
        )*)*
    };
}

elements! {
    0: i8 i16 i32 i64;
    1: u8 u16 u32 u64;
    2: f32 f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_types_of_rust_agree() {
        assert_eq!(data_type("float32"), Some(f32::DATA_TYPE));
        assert_eq!(data_type("uint8"), Some(u8::DATA_TYPE));
        assert_eq!(data_type("int64"), Some(i64::DATA_TYPE));
        assert_eq!(data_type("float128"), None);
    }

    #[test]
    fn the_characters_tell_the_bytes() {
        for (name, text, data_type) in NAMED {
            assert_eq!(text[2..].parse(), Ok(data_type.bytes()), "{name}");
            assert_eq!(type_text(data_type), Some(text));
        }
        assert_eq!(type_text(BFLOAT16.1), None);
    }
}

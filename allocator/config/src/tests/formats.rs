//! How numbers and reserves are read and written.

use crate::AddressReserve::{self, Bytes, Fraction};
use crate::format::*;
use crate::values::RESERVE;

#[test]
fn numbers_have_one_form() {
    assert_eq!(whole("0"), Some(0));
    assert_eq!(whole("18446744073709551615"), Some(u64::MAX));
    for text in ["", "+1", "-1", "1.0", "1e3", "0x10", "18446744073709551616"] {
        assert_eq!(whole(text), None, "{text}");
    }
    assert_eq!(mebibytes("20"), Some(20 << 20));
    assert_eq!(mebibytes(&MAX_MEBIBYTES.to_string()), Some(MAX_MEBIBYTES * MEBIBYTE));
    assert_eq!(mebibytes(&(MAX_MEBIBYTES + 1).to_string()), None);
    assert_eq!(decimal("0.5"), Some(0.5));
    assert_eq!(decimal("5e-1"), Some(0.5));
    for text in ["", "inf", "nan", "1e999", "-inf", "0,5", "half"] {
        assert_eq!(decimal(text), None, "{text}");
    }
}

#[test]
fn scaling_never_wraps() {
    assert_eq!(scale(100 << 30, 0.25), Some(25 << 30));
    assert_eq!(scale(7, 0.5), Some(3));
    assert_eq!(scale(u64::MAX, 1.0), None);
    assert_eq!(scale(1, -0.5), None);
    assert_eq!(scale(1, f64::NAN), None);
}

/// X2: a fraction is of the device's memory, a unit makes it absolute, and the full reserve caps both.
#[test]
fn x2_a_reserve_is_of_the_device_and_capped() {
    let total: u64 = 100 << 30;
    assert_eq!(Fraction(0.25).bytes(total), total / 4);
    assert_eq!(Bytes(40 << 30).bytes(total), 40 << 30);
    assert_eq!(Fraction(1.125).bytes(total), AddressReserve::full(total));
    assert_eq!(Bytes(u64::MAX).bytes(total), total + total / 8);
    assert_eq!(Bytes(u64::MAX).bytes(u64::MAX), u64::MAX);
    assert_eq!(Fraction(1.0).bytes(u64::MAX), u64::MAX);
}

#[test]
fn x2_a_reserve_is_read_and_written() {
    for (text, reserve) in [
        ("0.5", Fraction(0.5)),
        ("1", Fraction(1.0)),
        ("40G", Bytes(40 << 30)),
        ("512M", Bytes(512 << 20)),
        ("1000B", Bytes(1000)),
    ] {
        assert_eq!((RESERVE.read)(text), Some(reserve), "{text}");
        assert_eq!((RESERVE.write)(reserve), text);
    }
}

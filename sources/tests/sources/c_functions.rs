//! Sources of C functions.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;

use cachette::hal::{Ordinal, StreamRef};
use cachette::source::{AllocContext, Source, SourceErrorKind};
use cachette_sources::CFunctions;

/// The calls in order. Only one test uses the functions that write here.
static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(line: String) {
    CALLS.lock().expect("no test panics under it").push(line);
}

unsafe extern "C" fn allocate(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    note(format!("allocate {bytes} on {device} in {}", stream.addr()));
    ptr::with_exposed_provenance_mut(0x8000)
}

unsafe extern "C" fn free(ptr: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void) {
    let (ptr, stream) = (ptr.addr(), stream.addr());
    note(format!("free {ptr:#x} of {bytes} on {device} in {stream}"));
}

unsafe extern "C" fn no_memory(_: isize, _: c_int, _: *mut c_void) -> *mut c_void {
    ptr::null_mut()
}

unsafe extern "C" fn unaligned(_: isize, _: c_int, _: *mut c_void) -> *mut c_void {
    ptr::with_exposed_provenance_mut(0x8010)
}

unsafe extern "C" fn forget(ptr: *mut c_void, _: isize, _: c_int, _: *mut c_void) {
    assert_eq!(ptr.addr(), 0x8010);
}

#[test]
fn both_functions_are_called_with_pytorchs_arguments() {
    // SAFETY: 1. no code uses the address. 2. they are part of this program.
    let source = unsafe { CFunctions::new("mine", allocate, free).into_source() };
    let place = AllocContext::new(Ordinal(3), StreamRef::from_raw(77));
    // SAFETY: 1. the function writes the stream down.
    let ptr = unsafe { source.allocate(2 << 20, &place) }.unwrap();
    // SAFETY: 1. it came from there. 2. no work uses it.
    unsafe { source.free(ptr, 2 << 20, &place) }.unwrap();
    let called = ["allocate 2097152 on 3 in 77", "free 0x8000 of 2097152 on 3 in 77"];
    assert_eq!(*CALLS.lock().unwrap(), called);
}

#[test]
fn null_is_out_of_memory() {
    // SAFETY: 1. it returns no memory. 2. it is part of this program.
    let source = unsafe { CFunctions::new("empty", no_memory, forget).into_source() };
    // SAFETY: 1. the default stream.
    let error = unsafe { source.allocate(2 << 20, &super::HERE) }.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
    assert_eq!(error.to_string(), "empty returned no memory for 2.00 MiB on device 0; free memory and try again");
}

#[test]
fn an_unaligned_pointer_is_freed() {
    // SAFETY: 1. no code uses the address. 2. it is part of this program.
    let source = unsafe { CFunctions::new("crooked", unaligned, forget).into_source() };
    // SAFETY: 1. the default stream.
    let error = unsafe { source.allocate(512, &super::HERE) }.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Other);
    assert!(error.text().ends_with("it was freed"), "{error}");
}

#[test]
fn a_device_that_no_driver_shows_is_refused() {
    // SAFETY: 1. no code uses the address. 2. it is part of this program.
    let source = unsafe { CFunctions::new("far", unaligned, forget).into_source() };
    let far = AllocContext::new(Ordinal(u32::MAX), StreamRef::DEFAULT);
    // SAFETY: 1. the default stream.
    let error = unsafe { source.allocate(512, &far) }.unwrap_err();
    assert_eq!(error.text(), "no driver shows a device 4294967295");
}

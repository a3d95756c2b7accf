//! Sources of C functions.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;

use cachette::hal::{DevicePtr, Ordinal, StreamRef};
use cachette::source::{AllocContext, Source, SourceErrorKind, SourceEvent};
use cachette_sources::{CFunctions, CHooks, CPoolId};

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

unsafe extern "C" fn init(devices: c_int) {
    note(format!("init {devices}"));
}

unsafe extern "C" fn reset() {
    note("reset".into());
}

unsafe extern "C" fn memory_fraction(fraction: f64, device: c_int) {
    note(format!("fraction {fraction} on {device}"));
}

unsafe extern "C" fn base_allocation(ptr: *mut c_void, bytes: *mut usize) -> *mut c_void {
    note(format!("base of {:#x}", ptr.addr()));
    // SAFETY: a number of the caller.
    unsafe { *bytes = 4096 };
    ptr::with_exposed_provenance_mut(ptr.addr() & !0xfff)
}

unsafe extern "C" fn record_stream(ptr: *mut c_void, stream: *mut c_void) {
    note(format!("record {:#x} in {}", ptr.addr(), stream.addr()));
}

unsafe extern "C" fn begin_pool(device: c_int, pool: CPoolId, filter: *const c_void) {
    // SAFETY: 64 static bytes.
    let filter = unsafe { *filter.cast::<[u8; 64]>() };
    note(format!("begin {}/{} on {device}", pool.first, pool.second));
    assert_eq!(filter, [0; 64], "an empty std::function");
}

unsafe extern "C" fn end_pool(device: c_int, pool: CPoolId) {
    note(format!("end {}/{} on {device}", pool.first, pool.second));
}

unsafe extern "C" fn release_pool(device: c_int, pool: CPoolId) {
    note(format!("release {}/{} on {device}", pool.first, pool.second));
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
fn every_function_is_called_with_pytorchs_arguments() {
    let hooks = CHooks {
        init: Some(init),
        reset: Some(reset),
        memory_fraction: Some(memory_fraction),
        base_allocation: Some(base_allocation),
        record_stream: Some(record_stream),
        begin_pool: Some(begin_pool),
        end_pool: Some(end_pool),
        release_pool: Some(release_pool),
    };
    let functions = CFunctions::new("mine", allocate, free).with_hooks(hooks);
    // SAFETY: 1. no code uses the address. 2. they are part of this program.
    let source = unsafe { functions.into_source() };

    let place = AllocContext::new(Ordinal(3), StreamRef::from_raw(77));
    // SAFETY: the functions write the arguments down.
    let notify = |event| unsafe { source.notify(event) };
    notify(SourceEvent::Started(4));
    notify(SourceEvent::Began(Ordinal(3), (0, 5)));
    // SAFETY: 1. the function writes the stream down.
    let ptr = unsafe { source.allocate(2 << 20, &place) }.unwrap();
    notify(SourceEvent::StreamRecorded(ptr, StreamRef::from_raw(78)));
    // SAFETY: the function computes.
    let base = unsafe { source.base_allocation(ptr.add(512)) };
    assert_eq!(base, Some((ptr, 4096)));
    notify(SourceEvent::Ended(Ordinal(3), (0, 5)));
    // SAFETY: 1. it came from there. 2. no work uses it.
    unsafe { source.free(ptr, 2 << 20, &place) }.unwrap();
    notify(SourceEvent::Released(Ordinal(3), (0, 5)));
    notify(SourceEvent::Limited(0.25, Ordinal(3)));
    notify(SourceEvent::Emptied);
    let called = [
        "init 4",
        "begin 0/5 on 3",
        "allocate 2097152 on 3 in 77",
        "record 0x8000 in 78",
        "base of 0x8200",
        "end 0/5 on 3",
        "free 0x8000 of 2097152 on 3 in 77",
        "release 0/5 on 3",
        "fraction 0.25 on 3",
        "reset",
    ];
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

#[test]
fn a_base_allocation_of_null_is_not_known() {
    unsafe extern "C" fn unknown(_: *mut c_void, _: *mut usize) -> *mut c_void {
        ptr::null_mut()
    }
    let hooks = CHooks { base_allocation: Some(unknown), ..CHooks::default() };
    let functions = CFunctions::new("empty", no_memory, forget).with_hooks(hooks);
    // SAFETY: 1. it returns no memory. 2. they are part of this program.
    let source = unsafe { functions.into_source() };
    let anywhere = DevicePtr::new(512).unwrap();
    // SAFETY: the function looks at nothing.
    let base = unsafe { source.base_allocation(anywhere) };
    assert_eq!(base, None);
}

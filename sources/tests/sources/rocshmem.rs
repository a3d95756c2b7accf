//! rocSHMEM's memory, over the fake, which has its C++ names.

use std::ffi::c_void;
use std::ptr;

use cachette::hal::{Ordinal, StreamRef};
use cachette::source::{AllocContext, SourceErrorKind};
use cachette_sources::Rocshmem;

use super::fake::second_process;
use super::{HERE, allocate, free};

#[test]
fn cpp_names_are_found() {
    second_process("rocshmem::cpp_names_are_found", &[], |fake| {
        // SAFETY: 1. the fake needs no initialisation.
        let source = unsafe { Rocshmem::adopt(Ordinal(1)) }.unwrap();
        let context = AllocContext::new(Ordinal(1), StreamRef::DEFAULT);
        let ptr = allocate(&source, 2 << 20, &context).unwrap();
        free(&source, ptr, 2 << 20, &context).unwrap();
        assert_eq!(fake.count("fake_live"), 0);
        let error = allocate(&source, 4096, &HERE).unwrap_err();
        assert_eq!(error.text(), "rocSHMEM serves device 1 in this process, not device 0");
    });
}

#[test]
fn linked_functions_work_too() {
    unsafe extern "C" fn none(_: usize) -> *mut c_void {
        ptr::null_mut()
    }
    unsafe extern "C" fn free(_: *mut c_void) {}
    let name = "rocshmem::linked_functions_work_too";
    second_process(name, &[], |_| {
        // SAFETY: 1. and 2. they stand for it.
        let source = unsafe { Rocshmem::from_functions(none, free, Ordinal(0)) };
        let error = allocate(&source, 4096, &HERE).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
    });
}

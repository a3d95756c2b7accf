//! C functions in a shared library.

use std::path::{Path, PathBuf};
use std::{fs, slice};

use cachette::source::{Source, SourceError, SourceErrorKind};
use cachette_sources::CFunctions;

use super::fake::{Fake, library};
use super::{HERE, allocate, free};

fn load(path: &Path, allocate: &str, free: &str) -> Result<CFunctions, SourceError> {
    // SAFETY: 1. and 2. it is the fake, or it cannot be opened.
    unsafe { CFunctions::load(path, allocate, free) }
}

#[test]
fn memory_of_a_real_library_can_be_used() {
    let Some(path) = library() else { return };
    // SAFETY: 1. and 2. it is the fake, which stays loaded.
    let source = unsafe { load(path, "my_alloc", "my_free").unwrap().into_source() };
    assert!(source.name().starts_with("libfake"));
    let ptr = allocate(&source, 1 << 20, &HERE).unwrap();
    let at = std::ptr::with_exposed_provenance_mut(usize::try_from(ptr.address()).unwrap());
    // SAFETY: the fake returns host memory, which no other code uses.
    let bytes: &mut [u8] = unsafe { slice::from_raw_parts_mut(at, 1 << 20) };
    bytes.fill(7);
    assert!(bytes.iter().all(|byte| *byte == 7));
    let fake = Fake::open(path);
    assert!(fake.count("fake_live") > 0);
    free(&source, ptr, 1 << 20, &HERE).unwrap();
}

#[test]
fn every_missing_symbol_is_named() {
    let Some(path) = library() else { return };
    let error = load(path, "their_alloc", "their_free").unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    let end = "has no function their_alloc, their_free; \
               export it with C linkage under this name, or name another";
    assert!(error.to_string().ends_with(end), "{error}");
}

#[test]
fn a_missing_file_is_an_error() {
    let error = load(Path::new("/nowhere/libmine.so"), "a", "f").unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    assert_eq!(error.to_string(), "there is no file /nowhere/libmine.so; check the path, and build the library first");
}

#[test]
fn a_name_that_the_system_does_not_find_is_an_error() {
    let error = load(Path::new("libcachette-mine.so"), "a", "f").unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    let text = "not a library that can be opened: libcachette-mine.so (No such file or directory)";
    assert_eq!(error.text(), text);
}

#[test]
fn a_file_that_is_no_library_is_an_error() {
    let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("not-a-library.so");
    fs::write(&path, "these are words, and enough of them to be longer than any header is").unwrap();
    let error = load(&path, "a", "f").unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    assert!(error.text().starts_with("not a library that can be opened: "), "{error}");
    assert!(error.text().contains("not-a-library.so ("), "{error}");
}

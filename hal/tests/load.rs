//! Libraries are opened, and their symbols found, without a panic whatever is there.

#![cfg(feature = "load")]

use std::fs;

use cachette_hal::load::{Candidate, Library, loaded_file};
use cachette_hal::{LoadError, Reason, Tried, symbol_table};
use tempfile::NamedTempFile;

/// Opens the first candidate.
fn open(candidates: &[Candidate]) -> Result<Library, LoadError> {
    // SAFETY: the candidates are the C library's own, or cannot be opened.
    unsafe { Library::open_first(candidates) }
}

/// The mathematics library, which every process can have.
fn mathematics() -> Library {
    open(&[Candidate::Name("libm.so.6".into())]).expect("the C library has it")
}

/// The reasons of a failure to open.
fn reasons(result: Result<Library, LoadError>) -> Vec<Tried> {
    match result {
        Err(LoadError::LibraryMissing { tried }) => tried,
        other => panic!("expected no library, got {other:?}"),
    }
}

symbol_table! {
    /// A table that the mathematics library satisfies.
    struct Mathematics {
        required {
            /// Cosine, under a name of our own.
            cosine as "cos": fn(angle: f64) -> f64;
            /// Power.
            pow: fn(f64, f64) -> f64;
        }
        optional {
            /// Sine.
            sin: fn(angle: f64) -> f64;
            /// Not there.
            tesseract as "tesseract_v2": fn();
        }
    }
}

symbol_table! {
    /// A table that the mathematics library does not satisfy.
    struct Geometry {
        required {
            cos: fn(f64) -> f64;
            square: fn(f64) -> f64;
            circle as "circle_v2": fn(f64) -> f64;
        }
        optional {}
    }
}

symbol_table! {
    /// A table that any library satisfies.
    struct Nothing {
        required {}
        optional {
            sin: fn(f64) -> f64;
        }
    }
}

#[test]
fn the_first_that_opens_is_used() {
    let names = [
        Candidate::Name("libcachette-missing.so.1".into()),
        Candidate::Name("libm.so.6".into()),
        Candidate::Name("libc.so.6".into()),
    ];
    assert_eq!(open(&names).unwrap().name(), "libm.so.6");
}

#[test]
fn a_loaded_copy_is_found_and_one_that_is_not_is_not_loaded() {
    let library = open(&[Candidate::Loaded("libc.so.6".into())]).unwrap();
    assert_eq!(library.name(), "libc.so.6");
    let absent = Candidate::Loaded("libcachette-missing.so.1".into());
    let tried = reasons(open(&[absent]));
    assert_eq!(tried[0].name, "libcachette-missing.so.1");
    assert_eq!(tried[0].why, "not loaded in this process");
}

#[test]
fn every_name_is_listed_once_with_a_short_reason() {
    let scrap = NamedTempFile::new().unwrap();
    fs::write(&scrap, "This is no library.\n".repeat(100)).unwrap();
    let tried = reasons(open(&[
        Candidate::Loaded("libcachette-missing.so.1".into()),
        Candidate::Name("libcachette-missing.so.1".into()),
        Candidate::Path("/nowhere/libm.so".into()),
        Candidate::Path(scrap.path().to_owned()),
    ]));
    assert_eq!(tried.len(), 3);
    assert_eq!(tried[0].name, "libcachette-missing.so.1");
    assert_eq!(tried[0].why, "No such file or directory");
    assert_eq!(tried[1].name, "/nowhere/libm.so");
    assert_eq!(tried[1].why, "No such file or directory");
    assert_eq!(tried[2].name, scrap.path().display().to_string());
    assert_eq!(tried[2].why, "invalid ELF header");
}

#[test]
fn a_name_with_a_zero_byte_is_a_failure_like_others() {
    let tried = reasons(open(&[Candidate::Name("lib\0m.so".into())]));
    assert!(!tried[0].why.is_empty());
}

#[test]
fn an_empty_list_opens_nothing() {
    assert_eq!(reasons(open(&[])), []);
}

#[test]
fn a_table_is_resolved_and_called() {
    let table = Mathematics::resolve(&mathematics()).unwrap();
    // SAFETY: this is C's `double cos(double)`.
    let one = unsafe { (table.cosine)(0.0) };
    assert!((one - 1.0).abs() < 1e-12);
    // SAFETY: this is C's `double pow(double, double)`.
    let eight = unsafe { (table.pow)(2.0, 3.0) };
    assert!((eight - 8.0).abs() < 1e-12);
    let sin = table.sin().unwrap();
    // SAFETY: this is C's `double sin(double)`.
    let zero = unsafe { sin(0.0) };
    assert!(zero.abs() < 1e-12);
    assert_eq!(table.tesseract().unwrap_err(), Reason::NoSymbol("tesseract_v2"));
}

#[test]
fn every_required_symbol_that_is_missing_is_listed() {
    match Geometry::resolve(&mathematics()) {
        Err(LoadError::SymbolsMissing { library, symbols }) => {
            assert_eq!(library, "libm.so.6");
            assert_eq!(symbols, ["square", "circle_v2"]);
        }
        other => panic!("expected missing symbols, got {other:?}"),
    }
}

#[test]
fn a_table_may_require_nothing() {
    let table = Nothing::resolve(&mathematics()).unwrap();
    assert!(table.sin().is_ok());
}

/// A wheel renames a library; it is found by the beginning of its file name.
#[test]
fn a_library_that_is_loaded_under_a_name_of_its_own_is_found() {
    let original = loaded_file("libm.so").or_else(|| {
        mathematics();
        loaded_file("libm.so")
    });
    let original = original.expect("the mathematics library is loaded");
    let packed = std::env::temp_dir().join(format!("libpacked-{}-m.so", std::process::id()));
    assert_eq!(loaded_file("libpacked-"), None, "it is not loaded yet");
    fs::copy(&original, &packed).expect("the system has room for a copy");
    let opened = open(&[Candidate::Path(packed.clone())]);
    let found = loaded_file("libpacked-");
    fs::remove_file(&packed).expect("the copy can go");
    opened.expect("a copy is a library too");
    assert_eq!(found, Some(packed));
}

/// The loader finds what is loaded by its soname, whatever folder it came from.
#[test]
fn a_library_that_is_loaded_by_its_path_is_found_by_its_soname() {
    mathematics();
    let path = loaded_file("libm.so").expect("it is loaded");
    open(&[Candidate::Path(path)]).expect("it is a library");
    open(&[Candidate::Loaded("libm.so.6".into())]).expect("its soname is libm.so.6");
}

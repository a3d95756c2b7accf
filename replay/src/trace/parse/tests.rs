//! Good traces are read, and every wrong one is refused with its place.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::{Builder, NamedTempFile};

use super::*;
use crate::trace::Operation;

/// A file that goes when dropped.
struct Scratch(NamedTempFile);

impl Scratch {
    fn new(content: &[u8], ending: &str) -> Self {
        let file = Builder::new().prefix("cachette-trace-").suffix(ending).tempfile().unwrap();
        fs::write(&file, content).unwrap();
        Self(file)
    }

    fn open(&self) -> Result<Trace, TraceError> {
        Trace::open(self.0.path())
    }
}

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

const GOOD: &str = "a 7 1000 3\na 9 24 0\nf 7\na 7 500 3\nf 9\nf 7\n";

#[test]
fn comments_and_carriage_returns_are_skipped() {
    let plain = Scratch::new(GOOD.as_bytes(), ".trace").open().unwrap();
    let text = format!("# recorded\r\n{}#\r\n", GOOD.replace('\n', "\r\n"));
    let commented = Scratch::new(text.as_bytes(), ".trace").open().unwrap();
    assert_eq!(commented.operations(), plain.operations());
}

#[test]
fn slots_and_streams_are_numbered_from_zero() {
    let trace = Scratch::new(GOOD.as_bytes(), ".trace").open().unwrap();
    let allocate = |slot, stream, bytes| Operation::Allocate { slot, stream, bytes };
    assert_eq!(
        trace.operations(),
        [
            allocate(0, 0, 1000),
            allocate(1, 1, 24),
            Operation::Free { slot: 0 },
            allocate(0, 0, 500),
            Operation::Free { slot: 1 },
            Operation::Free { slot: 0 },
        ]
    );
    assert_eq!((trace.slots, trace.streams), (2, 2));
    assert_eq!(trace.peak_requested(), 1024);
    assert!(trace.name().starts_with("cachette-trace-"), "{trace:?}");
    assert!(!trace.name().contains('.'), "{trace:?}");
}

#[test]
fn a_packed_trace_is_the_same_whatever_its_name() {
    let plain = Scratch::new(GOOD.as_bytes(), ".trace").open().unwrap();
    for ending in [".trace.gz", ".trace", ""] {
        let unpacked = Scratch::new(&packed(GOOD), ending).open().unwrap();
        assert_eq!(unpacked.operations(), plain.operations());
    }
}

#[test]
fn wrong_lines_are_refused_with_their_number_and_what_is_expected() {
    let form = "expected 'a ID SIZE STREAM' or 'f ID', found ";
    for (line, expected) in [
        ("x 1 2 3", format!("{form}'x 1 2 3'")),
        ("alloc 1 2 3", format!("{form}'alloc 1 2 3'")),
        ("a 1 2", format!("{form}'a 1 2'")),
        ("a", format!("{form}'a'")),
        ("f", format!("{form}'f'")),
        ("f 0 1", format!("{form}'f 0 1'")),
        ("a 1 2 3 4", format!("{form}'a 1 2 3 4'")),
        ("", format!("{form}''")),
        ("\u{1b}[2J", format!("{form}'\\u{{1b}}[2J'")),
        ("a -1 2 3", "ID is '-1'; expected a whole number".into()),
        ("a 1 2.5 3", "SIZE is '2.5'; expected a whole number".into()),
        ("a 1 2 +3", "STREAM is '+3'; expected a whole number".into()),
        ("a 1 18446744073709551616 0", "SIZE is '18446744073709551616'".into()),
        ("a 0 8 0", "0 is allocated already".into()),
        ("f 5", "5 is freed but not allocated".into()),
        ("a 1 18446744073709551615 0", "more is live here".into()),
    ] {
        let scratch = Scratch::new(format!("a 0 512 0\n{line}\n").as_bytes(), ".trace");
        let message = scratch.open().unwrap_err().to_string();
        let place = format!("trace '{}', line 2: ", scratch.0.path().display());
        assert!(message.starts_with(&place), "{message}");
        assert!(message.contains(&expected), "{line}: {message}");
    }
}

#[test]
fn an_id_may_be_freed_once() {
    let error = Scratch::new(b"a 0 1 0\nf 0\nf 0\n", ".trace").open().unwrap_err();
    assert_eq!(error.line, Some(3));
    assert!(matches!(error.problem, TraceProblem::NotLive(0)));
}

#[test]
fn a_trace_cut_short_anywhere_is_refused() {
    let plain = GOOD.trim_end();
    let error = Scratch::new(plain.as_bytes(), ".trace").open().unwrap_err();
    assert!(matches!(error.problem, TraceProblem::LineCutShort));
    assert_eq!(error.line, Some(6));
    let whole = packed(GOOD);
    // Below two bytes it cannot be known for a packed file, and is refused as a line.
    for length in 1..whole.len() {
        let error = Scratch::new(&whole[..length], ".trace.gz").open().unwrap_err();
        let cut = matches!(error.problem, TraceProblem::PackedCutShort | TraceProblem::LineCutShort);
        assert!(cut, "{length}: {error}");
    }
}

#[test]
fn packed_data_that_are_damaged_are_refused() {
    let mut damaged = packed(GOOD);
    let checksum = damaged.len() - 6;
    damaged[checksum] ^= 1;
    let error = Scratch::new(&damaged, ".trace.gz").open().unwrap_err();
    assert!(matches!(error.problem, TraceProblem::Unreadable(_)), "{error}");
}

#[test]
fn an_empty_trace_is_refused() {
    for content in [Vec::new(), packed("")] {
        let message = Scratch::new(&content, ".trace").open().unwrap_err().to_string();
        assert!(message.ends_with("expected lines 'a ID SIZE STREAM' or 'f ID'"), "{message}");
    }
}

#[test]
fn what_is_no_file_is_refused() {
    for path in ["/nonexistent/x.trace", "/"] {
        let message = Trace::open(Path::new(path)).unwrap_err().to_string();
        let start = format!("trace '{path}': cannot be read: ");
        assert!(message.starts_with(&start), "{message}");
    }
}

#[test]
fn a_line_without_an_end_is_not_gathered() {
    for length in [LONGEST, 1 << 20] {
        let line = "0".repeat(length);
        for content in [line.clone().into_bytes(), packed(&line)] {
            let error = Scratch::new(&content, "").open().unwrap_err();
            assert!(matches!(error.problem, TraceProblem::LineTooLong(LONGEST)), "{error}");
            assert_eq!(error.line, Some(1));
        }
    }
    let largest = u64::MAX;
    let longest = format!("a {largest} 0 {largest}\n{}f {largest}\n", " ".repeat(LONGEST - 23));
    assert_eq!(Scratch::new(longest.as_bytes(), "").open().unwrap().operations().len(), 2);
}

#[test]
fn a_long_line_is_shown_by_its_beginning() {
    let line = format!("{}\n", "z".repeat(LONGEST - 1));
    let message = Scratch::new(line.as_bytes(), "").open().unwrap_err().to_string();
    assert!(message.ends_with(&format!("'{}…'", "z".repeat(SHOWN))), "{message}");
}

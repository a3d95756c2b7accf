//! Damaged traces, and damaged snapshots that are replayed: no panic, bounded memory, and what is accepted comes back.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use cachette_mutation::{Counting, Outcome, Run, corpus, usage};
use cachette_replay::trace::{Operation, Trace};
use tempfile::NamedTempFile;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The path of a file, which holds `content` now.
fn holding<'a>(file: &'a NamedTempFile, content: &[u8]) -> &'a Path {
    fs::write(file, content).expect("the file is written");
    file.path()
}

/// The trace as a text; slots are names as good as any.
fn text_of(trace: &Trace) -> String {
    let mut text = String::new();
    for operation in trace.operations() {
        let line = match *operation {
            Operation::Allocate { slot, stream, bytes } => writeln!(text, "a {slot} {bytes} {stream}"),
            Operation::Free { slot } => writeln!(text, "f {slot}"),
        };
        line.expect("a string takes everything");
    }
    text
}

#[test]
fn traces_that_were_damaged() {
    let [file, again] = [(); 2].map(|()| NamedTempFile::new().unwrap());
    let run = Run {
        files: &corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")),
        words: &[b"a 1 2 3\n", b"f 1\n", b"\n", b" ", b"a", b"f"],
        mutants: 2_000,
    };
    run.try_all(|mutant| {
        let path = holding(&file, mutant);
        let (read, used) = usage(|| Trace::open(path));
        // A packed file can unpack to a thousand times its size.
        let unpacked = if mutant.starts_with(&[0x1F, 0x8B]) { 1100 } else { 1 };
        let most = 64 * unpacked * mutant.len() + (256 << 10);
        assert!(used.peak <= most, "{used:?} of {}", mutant.len());
        assert!(used.total <= 4 * most, "{used:?} of {}", mutant.len());
        match read {
            Ok(trace) => {
                let read = Trace::open(holding(&again, text_of(&trace).as_bytes()));
                let read = read.expect("what was accepted is accepted again");
                assert_eq!(read.operations(), trace.operations());
                assert_eq!(read.peak_requested(), trace.peak_requested());
                Outcome::Accepted
            }
            Err(error) => {
                assert!(error.to_string().len() < 1000, "{error}");
                Outcome::Refused
            }
        }
    });
}

#[test]
fn snapshots_that_were_damaged_are_replayed_or_refused() {
    let file = NamedTempFile::new().unwrap();
    let folder = |name: &str| format!("{}/../snapshot/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files = corpus(folder("pickle"));
    files.extend(corpus(folder("json")));
    // Some of them have no history.
    files.retain(|content| Trace::open_recorded(holding(&file, content), None).is_ok());
    let run = Run { files: &files, words: &[], mutants: 2_000 };
    run.try_all(|mutant| match Trace::open_recorded(holding(&file, mutant), None) {
        Ok(trace) => {
            assert!(!trace.operations().is_empty());
            Outcome::Accepted
        }
        Err(_) => Outcome::Refused,
    });
}

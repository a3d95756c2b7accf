//! Damaged snapshots: no panic, no more memory than is allowed, and what is accepted comes back from either format.

mod sample;

use cachette_mutation::{Counting, Outcome, Run, corpus, usage};
use cachette_snapshot::{BlockState, Limits, Snapshot, SnapshotError};
use sample::{as_json, as_pickle, small};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Small, so that a mutant can pass it.
const LIMITS: Limits = Limits { bytes: 1 << 15, memory: 1 << 18, items: 1 << 10, depth: 32 };
/// Copies of a file, and a buffer, that a reader has besides.
const BESIDES: usize = 3 * (1 << 15) + (64 << 10);

/// Tries every mutant of the files in a folder of the corpus.
fn try_all(folder: &str, words: &[&[u8]], read: fn(&[u8]) -> Result<Snapshot, SnapshotError>) {
    let folder = format!("{}/corpus/{folder}", env!("CARGO_MANIFEST_DIR"));
    let files = corpus(folder);
    let run = Run { files: &files, words, mutants: 20_000 };
    run.try_all(|mutant| {
        let (read, used) = usage(|| read(mutant));
        assert!(used.peak <= (1 << 18) + BESIDES, "{used:?}");
        // Work that no peak shows: what is copied again and again.
        assert!(used.total <= 4 << 20, "{used:?}");
        match read {
            Ok(snapshot) => {
                check_round_trips(&snapshot);
                Outcome::Accepted
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("snapshot: ") && text.len() < 1000, "{text}");
                Outcome::Refused
            }
        }
    });
}

/// Whatever was read is the same once it was written and read again; a figure that is no number equals nothing.
fn check_round_trips(snapshot: &Snapshot) {
    let shown = format!("{snapshot:?}");
    if shown.contains("NaN") || shown.contains("inf") {
        return;
    }
    let json = as_json(snapshot);
    assert_eq!(&Snapshot::read_json(&*json).expect("what was written is read"), snapshot);
    // Devices beyond all lists are JSON's alone.
    let mut pickle = Vec::new();
    if snapshot.write_pickle(&mut pickle).is_ok() {
        let once = Snapshot::read_pickle(&*pickle).expect("what was written is read");
        let twice = Snapshot::read_pickle(&*as_pickle(&once)).expect("and once more");
        assert_eq!(once, twice);
    }
    for segment in &snapshot.segments {
        let used = segment.blocks.iter().find(|block| block.state != BlockState::Free);
        assert!(segment.requested() >= used.map_or(0, |block| block.requested));
    }
}

#[test]
fn the_corpus_has_what_is_written_today() {
    let written = [as_json(&small()), as_pickle(&small())];
    let kept = [&include_bytes!("../corpus/json/whole.json")[..], include_bytes!("../corpus/pickle/own.pickle")];
    assert_eq!(written, kept, "write both files again");
}

#[test]
fn pickles_that_were_damaged() {
    let words: [&[u8]; 16] = [
        b"(",
        b"]",
        b"}",
        b"e",
        b"u",
        b"t",
        b"h\x00",
        b"q\x01",
        b"j\x00\x00\x00\x00",
        b"r\xff\xff\xff\xff",
        b"X\x04\x00\x00\x00name",
        b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff",
        b"cos\nsystem\n",
        b"\x94",
        b"0",
        b"N",
    ];
    try_all("pickle", &words, |bytes| Snapshot::read_pickle_within(bytes, &LIMITS));
}

#[test]
fn json_that_was_damaged() {
    let words: [&[u8]; 12] = [
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b"[[],[]],",
        b"\"stacks\":",
        b"null",
        b"1e999",
        b"\\ud800",
        b"[0,0,0,0,0],",
        b"18446744073709551615",
    ];
    try_all("json", &words, |bytes| Snapshot::read_json_within(bytes, &LIMITS));
}

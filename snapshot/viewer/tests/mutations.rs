//! Damaged snapshots that are accepted are drawn as any other.

use cachette_mutation::{Outcome, Run, corpus};
use cachette_snapshot::{Limits, Snapshot, SnapshotError};

/// Tries every mutant of the files in a folder of the corpus of snapshots.
fn try_all(folder: &str, read: fn(&[u8]) -> Result<Snapshot, SnapshotError>) {
    let folder = format!("{}/../corpus/{folder}", env!("CARGO_MANIFEST_DIR"));
    let run = Run { files: &corpus(folder), words: &[], mutants: 5_000 };
    run.try_all(|mutant| {
        let Ok(snapshot) = read(mutant) else {
            return Outcome::Refused;
        };
        let mut page = Vec::new();
        cachette_viewer::page(&snapshot, &mut page).expect("memory takes everything");
        assert!(page.ends_with(b"</html>\n"), "the page is whole");
        Outcome::Accepted
    });
}

#[test]
fn whatever_is_read_from_a_damaged_pickle_is_drawn() {
    try_all("pickle", |bytes| Snapshot::read_pickle_within(bytes, &Limits::DEFAULT));
}

#[test]
fn whatever_is_read_from_damaged_json_is_drawn() {
    try_all("json", |bytes| Snapshot::read_json_within(bytes, &Limits::DEFAULT));
}

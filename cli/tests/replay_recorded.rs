//! `cachette replay` of a snapshot says what the recorded run would have needed.

mod program;
mod recording;
mod replaying;
mod scratch;

use std::fs;

use cachette_snapshot::Snapshot;
use recording::{MIB, pickled, run_of_three};
use replaying::{refused, rows_of};
use scratch::Scratch;

#[test]
fn the_last_line_says_what_the_run_would_have_needed() {
    let file = pickled(&run_of_three());
    let options = [file.path(), "--backend", "host", "--config", "expandable_segments:False"];
    let (rows, table) = rows_of(&options, 0);
    assert_eq!(rows.len(), 1);
    // 4 MiB that are older, and three sizes of which two are given back: segments of 20, 20 and 30 MiB.
    assert_eq!(rows[0]["operations"], 6);
    assert_eq!(rows[0]["peak_requested"], 34 * MIB);
    assert_eq!(rows[0]["recorded_peak_reserved"], 64 * MIB);
    let last = table.lines().next_back().unwrap();
    assert_eq!(last, "this run would have needed 70.00 MiB instead of 64.00 MiB", "{table}");
    assert!(table.contains(": allocations older than the history, made first: 1\n"), "{table}");
}

#[test]
fn each_configuration_has_its_line() {
    let file = pickled(&run_of_three());
    let (rows, table) = rows_of(&[file.path(), "--backend", "host", "--compare"], 0);
    let elastic = rows.iter().find(|row| row["name"] == "elastic").unwrap();
    assert_eq!(elastic["peak_reserved"], 34 * MIB);
    assert!(table.ends_with("this run would have needed 34.00 MiB with 'elastic' instead of 64.00 MiB\n"), "{table}");
}

#[test]
fn json_is_as_good_as_a_pickle() {
    let json = Scratch::new(".json");
    let out = fs::File::create(json.path()).unwrap();
    run_of_three().write_json(out).unwrap();
    let (rows, _) = rows_of(&[json.path(), "--backend", "host"], 0);
    assert_eq!(rows[0]["operations"], 6);
}

#[test]
fn one_of_several_devices_is_chosen() {
    let mut snapshot = run_of_three();
    let mut second = snapshot.traces[0].clone();
    second.device = 3;
    second.events.truncate(2);
    snapshot.traces.push(second);
    let file = pickled(&snapshot);
    refused(&[file.path()], "the snapshot has the histories of devices 0, 3; choose one with --recorded-device");
    refused(&[file.path(), "--recorded-device", "1"], "device 1 has no history in the snapshot; these have: 0, 3");
    let options = [file.path(), "--recorded-device", "3", "--backend", "host"];
    let (rows, _) = rows_of(&options, 0);
    assert_eq!(rows[0]["operations"], 1);
}

#[test]
fn snapshots_that_cannot_be_replayed() {
    let file = pickled(&Snapshot::default());
    refused(&[file.path()], "the snapshot has no history to replay");
    let cut = Scratch::holding(b"\x80\x02}", ".pickle");
    refused(&[cut.path()], &format!("error: trace '{}': at byte 3: the pickle ends too early", cut.path()));
}

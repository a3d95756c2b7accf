//! `cachette bench` prints every row, and refuses what it cannot measure.

mod program;
mod scratch;

use std::fs;

use program::run;
use scratch::Scratch;

const ROWS: [&str; 12] = [
    "pair 1KiB",
    "pair 1MiB",
    "pair 16MiB",
    "pinned_pair 64KiB",
    "prefetch 8MiB",
    "churn 512B-64MiB",
    "churn 512B-1MiB",
    "churn10k 512B-1MiB",
    "threads_own_stream 1",
    "threads_own_stream 2",
    "threads_one_stream 1",
    "threads_one_stream 2",
];

#[test]
fn every_row_is_printed_and_written() {
    let file = Scratch::new(".json");
    let ran = run(&["bench", "--backend", "host", "--quick", "--threads", "1,2", "--json", file.path()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("host:0  "), "{ran:?}");
    assert!(lines[0].ends_with("1024.00 GiB of phantom memory"), "{ran:?}");
    let json = file.json();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), ROWS.len());
    for ((row, line), expected) in rows.iter().zip(&lines[2..]).zip(ROWS) {
        let keys: Vec<_> = row.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["ns_per_pair", "parameter", "workload"]);
        let text = |key: &str| row[key].as_str().unwrap();
        assert_eq!(format!("{} {}", text("workload"), text("parameter")), expected);
        let ns = row["ns_per_pair"].as_f64().unwrap();
        assert!(ns > 0.0, "{row}");
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells.join(" "), format!("{expected} {ns:.1}"));
    }
}

/// Asserts that the request is refused, with `expected` in the message.
#[track_caller]
fn refused(options: &[&str], expected: &str) {
    let arguments = [&["bench", "--quick"], options].concat();
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    assert!(ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    assert_eq!(ran.stdout, "", "{arguments:?}");
}

#[test]
fn wrong_numbers_of_threads() {
    for text in ["0", "-1", "x", "", "1,,2", "257", "1;2"] {
        refused(&["--threads", text], "a whole number from 1 to 256");
    }
}

#[test]
fn devices_that_are_not_there() {
    refused(&["--backend", "vulkan"], "there is no backend named 'vulkan'");
    refused(&["--backend", "host", "--device", "1"], "there is no device host:1");
    refused(&["--device", "x"], "a device is a whole number from 0 up");
}

#[test]
fn a_wrong_request_leaves_older_results_alone() {
    let older = Scratch::holding("older", ".json");
    refused(&["--device", "9", "--backend", "host", "--json", older.path()], "no device host:9");
    assert_eq!(fs::read_to_string(older.path()).unwrap(), "older");
}

#[test]
fn a_file_that_cannot_be_written() {
    let path = "/nonexistent/bench.json";
    let expected = format!("error: cannot write to '{path}': ");
    refused(&["--backend", "host", "--json", path], &expected);
}

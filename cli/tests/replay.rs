//! `cachette replay` shows what a trace needs, and refuses what is no trace.

mod program;
mod replaying;
mod scratch;

use std::fs;

use replaying::{refused, rows_of};
use scratch::Scratch;
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Direct segments.
const DIRECT: &str = "expandable_segments:False";

/// 10 MiB freed and asked for again, and 100 bytes on another stream.
const SMALL: &str = "a 5 10485760 0\nf 5\na 5 10485760 0\na 6 100 7\nf 5\nf 6\n";

fn small() -> Scratch {
    Scratch::holding(SMALL, ".trace")
}

#[test]
fn the_figures_are_printed_and_written() {
    let trace = small();
    let (rows, table) = rows_of(&[trace.path(), "--backend", "host", "--config", DIRECT], 0);
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    let keys: Vec<_> = row.as_object().unwrap().keys().cloned().collect();
    let promised = "backend cold_ns_per_op config created_chunks driver_calls moved_chunks operations peak_allocated \
                    peak_requested peak_reserved ratio steady_created_chunks steady_driver_calls steady_moved_chunks \
                    steady_ns_per_op trace warm_ns_per_op";
    assert_eq!(keys.join(" "), promised);
    assert!(row["trace"].as_str().unwrap().starts_with("cachette-cli-"));
    assert_eq!(row["backend"], "host");
    assert_eq!(row["config"], DIRECT);
    assert_eq!(row["operations"], 6);
    assert_eq!(row["peak_requested"], 10 * MIB + 100);
    assert_eq!(row["peak_allocated"], 10 * MIB + 512);
    assert_eq!(row["peak_reserved"], 12 * MIB);
    // For each segment one that obtains it, and three that keep captures safe.
    assert_eq!(row["driver_calls"], 2 * 4);
    assert!((row["ratio"].as_f64().unwrap() - 1.2).abs() < 1e-3);
    assert!(row["cold_ns_per_op"].as_f64().unwrap() > 0.0);
    assert!(row["warm_ns_per_op"].as_f64().unwrap() > 0.0);
    assert!(row["steady_ns_per_op"].as_f64().unwrap() > 0.0);
    assert_eq!(row["steady_driver_calls"], 0);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].ends_with("141.00 GiB of phantom memory"), "{table}");
    assert!(lines[2].contains(" 10.00 MiB  12.00 MiB  1.200 "), "{table}");
}

#[test]
fn a_configuration_of_the_environment_is_said_to_be_left_out() {
    let trace = small();
    let output = program::cachette(&["replay", trace.path()]).env("CACHETTE_ALLOC_CONF", "caching:False").output();
    let ran = program::Ran::of(&output.expect("it starts"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("CACHETTE_ALLOC_CONF is not replayed; name a configuration by --config"), "{ran:?}");
}

#[test]
fn without_options_the_default_stands_beside_direct_segments() {
    let trace = small();
    let (rows, printed) = rows_of(&[trace.path(), "--backend", "host"], 0);
    let found: Vec<_> =
        rows.iter().map(|row| (row["name"].as_str().unwrap(), row["config"].as_str().unwrap())).collect();
    assert_eq!(found, [("direct", DIRECT), ("default", "default")]);
    assert_eq!(rows[0]["saved_bytes"], Value::Null);
    assert_eq!(rows[1]["saved_bytes"], 0);
    let last = "Elastic segments (the default) hold 1.200 times what is requested, direct segments 1.200 times: nothing is saved.\n";
    assert!(printed.ends_with(last), "{printed}");
}

#[test]
fn what_is_saved_is_said_for_each_trace() {
    let growing = Scratch::holding("a 0 12582912 0\nf 0\na 0 41943040 0\nf 0\n", ".trace");
    let (rows, printed) = rows_of(&[growing.path(), small().path(), "--backend", "host"], 0);
    assert_eq!(rows[1]["saved_bytes"], 12 * MIB);
    let said: Vec<_> = printed.lines().filter(|line| line.contains(": Elastic segments (the default) hold ")).collect();
    assert_eq!(said.len(), 2, "{printed}");
    assert!(
        said[0].ends_with(" hold 1.000 times what is requested, direct segments 1.300 times: 12.00 MiB are saved."),
        "{printed}"
    );
}

#[test]
fn a_configuration_or_a_limit_is_replayed_alone() {
    let trace = small();
    for options in [["--config", ""], ["--limit", "1G"]] {
        let (rows, printed) = rows_of(&[&[trace.path(), "--backend", "host"], &options[..]].concat(), 0);
        assert_eq!(rows.len(), 1, "{printed}");
        assert!(!printed.contains("saved"), "{printed}");
    }
}

#[test]
fn each_configuration_gives_a_row_for_each_trace() {
    let (one, two) = (small(), small());
    let options = [
        one.path(),
        two.path(),
        "--phantom",
        "80G",
        "--config",
        "",
        "--config",
        "large_segment_size_mb: 40, max_split_size_mb:64",
    ];
    let (rows, table) = rows_of(&options, 0);
    let configs: Vec<_> = rows.iter().map(|row| row["config"].as_str().unwrap()).collect();
    let other = "large_segment_size_mb:40,max_split_size_mb:64";
    assert_eq!(configs, ["default", other, "default", other]);
    assert!(table.contains("80.00 GiB of phantom memory"), "{table}");
}

#[test]
fn running_out_of_memory_is_a_row_with_the_figures() {
    let trace = small();
    let options = [trace.path(), "--phantom", "11M", "--config", DIRECT, "--config", "memory_limit:1M"];
    let (rows, table) = rows_of(&options, 1);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["peak_reserved"], 10 * MIB);
    assert_eq!(rows[0]["cold_ns_per_op"], Value::Null);
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.starts_with("operation 4 of the first pass failed: out of memory"), "{error}");
    assert_eq!(rows[1]["peak_reserved"], 0);
    assert!(table.contains(" out of memory "), "{table}");
    assert!(table.contains("with memory_limit:1M: operation 1 of the first pass"), "{table}");
}

#[test]
fn a_request_larger_than_any_device_is_a_row_too() {
    let trace = Scratch::holding("a 0 1152921504606846976 0\n", ".trace");
    let (rows, _) = rows_of(&[trace.path(), "--backend", "host"], 1);
    assert!(rows[0]["error"].as_str().unwrap().contains("1 EiB"), "{rows:?}");
}

#[test]
fn traces_that_are_none() {
    refused(&[], "<TRACE>");
    refused(&["/nonexistent/x.trace"], "trace '/nonexistent/x.trace': cannot be read: ");
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/gnn_sampled.trace.gz");
    let whole = fs::read(packed).unwrap();
    for (content, expected) in [
        (&b""[..], "there is no operation in it; expected lines 'a ID SIZE STREAM' or 'f ID'"),
        (b"a 0 512 0\nb 0\n", "line 2: expected 'a ID SIZE STREAM' or 'f ID', found 'b 0'"),
        (b"a 0 512\n", "line 1: expected 'a ID SIZE STREAM' or 'f ID', found 'a 0 512'"),
        (b"a 0 512 0\nf 1\n", "line 2: 1 is freed but not allocated"),
        (b"a 0 512 0\na 0 512 0\n", "line 2: 0 is allocated already"),
        (b"a 0 512 0\nf 0", "line 2: the last line has no end; the file is cut short"),
        (&whole[..whole.len() / 2], "the packed data end too early"),
    ] {
        let trace = Scratch::holding(content, ".trace");
        refused(&[trace.path()], expected);
        refused(&[trace.path()], &format!("error: trace '{}'", trace.path()));
    }
}

#[test]
fn a_configuration_that_is_wrong_says_where() {
    let trace = small();
    refused(
        &[trace.path(), "--config", "max_split_size_mb:20,never_blok:True"],
        "at byte 21: there is no key 'never_blok' (did you mean 'never_block'?)",
    );
    refused(&[trace.path(), "--config", "never_block:yes"], "at byte 12: ");
}

#[test]
fn sizes_and_devices_that_are_not_there() {
    let trace = small();
    for text in ["", "0", "80GBs", "-1", "1.5B"] {
        refused(&[trace.path(), "--phantom", text], "141GB (powers of 1000)");
        refused(&[trace.path(), "--limit", text], "141GB (powers of 1000)");
    }
    for options in [&["--phantom", "80G"][..], &["--fit"]] {
        refused(
            &[&[trace.path(), "--backend", "cuda"], options].concat(),
            &format!("{} works only with the backend host; omit it for cuda", options[0]),
        );
    }
    refused(&[trace.path(), "--backend", "vulkan"], "there is no backend named 'vulkan'");
    refused(&[trace.path(), "--backend", "host", "--device", "1"], "there is no device host:1");
}

#[test]
fn a_trace_that_requests_nothing_has_no_ratio() {
    let trace = Scratch::holding("a 0 0 0\nf 0\n", ".trace");
    let (_, table) = rows_of(&[trace.path(), "--backend", "host"], 0);
    assert!(!table.contains("NaN"), "{table}");
}

#[test]
fn a_wrong_request_leaves_older_results_alone() {
    let older = Scratch::holding("older", ".json");
    refused(&["/nonexistent/x.trace", "--json", older.path()], "cannot be read");
    assert_eq!(fs::read_to_string(older.path()).unwrap(), "older");
}

#[test]
fn a_file_that_cannot_be_written() {
    let trace = small();
    let path = "/nonexistent/replay.json";
    let expected = format!("error: cannot write to '{path}': ");
    refused(&[trace.path(), "--backend", "host", "--json", path], &expected);
}

//! `cachette replay` shows how little memory is enough.

mod program;
mod replaying;
mod scratch;

use program::run;
use replaying::{refused, rows_of};
use scratch::Scratch;
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// 100 bytes that stay, and 10, 12 and 40 MiB one after the other.
const GROWING: &str = "a 0 100 0\na 1 10485760 0\nf 1\na 1 12582912 0\nf 1\na 1 41943040 0\nf 1\n";

/// 4 MiB and 20 MiB.
const TWO: &str = "a 0 4194304 0\na 1 20971520 0\nf 0\nf 1\n";

fn trace(text: &str) -> Scratch {
    Scratch::holding(text, ".trace")
}

#[test]
fn the_smallest_limit_is_exact() {
    let trace = trace(GROWING);
    let (rows, table) = rows_of(&[trace.path(), "--fit", "--config", "expandable_segments:False"], 0);
    let keys: Vec<_> = rows[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["backend", "config", "confirmed", "fit_bytes", "fit_ratio", "peak_requested", "peak_reserved", "trace"]
    );
    // 2 MiB for the 100 bytes, and a segment for each of the others, of which only the last must be there.
    assert_eq!(rows[0]["peak_requested"], 40 * MIB + 100);
    assert_eq!(rows[0]["peak_reserved"], 64 * MIB);
    assert_eq!(rows[0]["fit_bytes"], 42 * MIB);
    assert_eq!(rows[0]["confirmed"], true);
    assert!(table.contains(" 40.00 MiB  64.00 MiB  42.00 MiB  44040192  1.050\n"), "{table}");
}

#[test]
fn a_trace_fits_in_what_was_found_and_not_in_less() {
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/resnet_multiscale.trace.gz");
    let (rows, _) = rows_of(&[packed, "--fit", "--compare"], 0);
    for name in ["direct", "elastic"] {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        let fits = row["fit_bytes"].as_u64().unwrap();
        assert!(fits >= row["peak_requested"].as_u64().unwrap(), "{row}");
        assert_eq!(row["confirmed"], true);
        let config = row["config"].as_str().unwrap().replace("default", "");
        assert!(first_pass_fits(packed, &config, fits), "{row}");
        assert!(!first_pass_fits(packed, &config, fits - 2 * MIB), "{row}");
    }
}

/// Whether the first pass of a replay under `limit` comes to its end; the others may not.
fn first_pass_fits(trace: &str, config: &str, limit: u64) -> bool {
    let (file, limit) = (Scratch::new(".json"), limit.to_string());
    let options = ["--phantom", "141G", "--config", config, "--limit", &limit];
    let to = ["--json", file.path()];
    run(&[&["replay", trace], &options[..], &to].concat());
    file.json()[0]["cold_ns_per_op"].is_number()
}

#[test]
fn a_trace_larger_than_the_device_fits_nowhere() {
    let trace = trace(GROWING);
    let (rows, table) = rows_of(&[trace.path(), "--fit", "--phantom", "16M"], 1);
    assert_eq!(rows[0]["fit_bytes"], Value::Null);
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.starts_with("operation 6 of the first pass failed: "), "{error}");
    assert!(table.contains("  out of memory  "), "{table}");
}

#[test]
fn a_limit_shows_where_each_configuration_runs_out() {
    let trace = trace(TWO);
    let options = [
        trace.path(),
        "--backend",
        "host",
        "--config",
        "expandable_segments:False",
        "--config",
        "large_segment_size_mb:30,expandable_segments:False",
        "--config",
        "",
        "--limit",
    ];
    let (rows, table) = rows_of(&[&options[..], &["25M"]].concat(), 1);
    // A segment of 20 or 30 MiB, and another of 20 MiB; elastic ones grow by what is asked for.
    assert!(
        table
            .contains(" with large_segment_size_mb:30,expandable_segments:False: operation 1 of the first pass failed"),
        "{table}"
    );
    for (row, place) in rows.iter().zip([Some(2), Some(1), None]) {
        assert_eq!(row["limit"], 25 * MIB);
        let expected = place.map(|operation| format!("operation {operation} of the first pass"));
        let error = row["error"].as_str().map(|error| error[..29].to_owned());
        assert_eq!(error, expected);
    }
    let (_, table) = rows_of(&[&options[..], &["50M"]].concat(), 0);
    assert!(!table.contains("out of memory"), "{table}");
}

#[test]
fn limits_that_are_none_or_contradict() {
    let trace = trace(TWO);
    for text in ["", "0", "0G", "-1", "8GBs"] {
        refused(&[trace.path(), "--limit", text], "141GB (powers of 1000)");
    }
    refused(
        &[trace.path(), "--phantom", "8G", "--limit", "9G"],
        "error: --limit 9.00 GiB is more than the 8.00 GiB of the device; use a smaller limit, or omit it\n",
    );
    refused(&[trace.path(), "--limit", "8G", "--fit"], "cannot be used with");
    for (config, options) in [
        ("memory_limit:4G", &["--limit", "8G"][..]),
        ("memory_limit:4G", &["--fit"]),
        ("per_process_memory_fraction:0.5", &["--fit"]),
    ] {
        let expected = format!(
            "error: the configuration '{config}' limits memory, and so does {}; leave one of them out\n",
            options[0]
        );
        let arguments = [trace.path(), "--phantom", "16G", "--config", config];
        refused(&[&arguments[..], options].concat(), &expected);
    }
    refused(&["/nonexistent/x.trace", "--fit", "--compare"], "cannot be read");
}

#[test]
fn a_device_size_is_answered_in_words() {
    let runs = [80, 160].map(|more| trace(&format!("a 0 104857600 0\na 1 {} 0\nf 1\n", more * MIB)));
    let ran = run(&["replay", runs[0].path(), runs[1].path(), "--fit", "--device-size", "200M"]);
    assert_eq!(ran.code, Some(1), "one of them does not fit: {ran:?}");
    let text = ran.stdout;
    assert!(text.contains(" requests 180.00 MiB at its peak.\nOn a device of 200.00 MiB it\n"), "{text}");
    assert!(text.contains("  fits with PyTorch's allocator: needs 180.00 MiB, 20.00 MiB to spare\n"), "{text}");
    assert!(text.contains("  does not fit with PyTorch's allocator: lacks 60.00 MiB\n"), "{text}");
    assert!(text.contains("  fits with Cachette: needs "), "{text}");
    assert!(text.contains("  fits with PyTorch's expandable segments: needs "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_run_that_does_not_fit_with_cachette_gives_exit_code_1() {
    let runs = [80, 160].map(|more| trace(&format!("a 0 104857600 0\na 1 {} 0\nf 1\n", more * MIB)));
    let asked = |runs: &[&Scratch]| {
        let paths: Vec<_> = runs.iter().map(|trace| trace.path()).collect();
        run(&[&["replay"], &paths[..], &["--fit", "--device-size", "200M"]].concat())
    };
    assert_eq!(asked(&[&runs[0]]).code, Some(0));
    let ran = asked(&[&runs[1]]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), "error: the run does not fit with Cachette\n"));
    let ran = asked(&[&runs[0], &runs[1]]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), "error: 1 of 2 runs do not fit with Cachette\n"));
    assert!(ran.stdout.contains("does not fit with Cachette: lacks "), "{ran:?}");
}

#[test]
fn answers_are_written_as_json_too() {
    let (trace, file) = (trace(TWO), Scratch::new(".json"));
    run(&["replay", trace.path(), "--fit", "--device-size", "30M", "--json", file.path()]);
    let found = file.json();
    assert_eq!(found["runs"].as_array().unwrap().len(), 3);
    assert_eq!(found["runs"][0]["allocator"], "PyTorch's allocator");
    assert_eq!(found["runs"][0]["device_size"], 30 * MIB);
    assert_eq!(found["runs"][2]["fits"], true);
}

#[test]
fn device_sizes_that_make_no_sense() {
    let trace = trace(TWO);
    refused(&[trace.path(), "--device-size", "80GB"], "--fit");
    refused(&[trace.path(), "--fit", "--device-size", "80"], "80 bytes are less than a segment of 2 MiB; did you mean");
    refused(&[trace.path(), "--fit", "--device-size", "80 GB"], "141GB (powers of 1000)");
    refused(&[trace.path(), "--fit", "--device-size", "8G", "--compare"], "cannot be used with");
}

#[test]
fn a_removed_option_says_what_to_use() {
    let trace = trace(TWO);
    refused(&[trace.path(), "--fit", "--device-size", "8G", "--batch", "8"], "this option was removed; draw a line");
    refused(&[trace.path(), "--html", "page.html"], "this option was removed; use --json, or `cachette snapshot view`");
}

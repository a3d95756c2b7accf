//! `cachette replay --compare` puts direct and elastic segments side by side.

mod program;
mod replaying;
mod scratch;

use replaying::{refused, rows_of};
use scratch::Scratch;
use serde_json::Value;

/// The traces of the project, and `peak_reserved / peak_requested` with direct segments.
const PINNED: [(&str, f64); 6] = [
    ("gnn_sampled", 2.612),
    ("gpt2_varlen", 1.156),
    ("kv_server", 1.321),
    ("llama_generate", 1.221),
    ("prefetch_streams", 1.512),
    ("resnet_multiscale", 1.406),
];

fn rows_named<'a>(rows: &'a [Value], name: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["name"] == name).collect()
}

#[test]
fn direct_segments_need_what_they_always_did_and_elastic_ones_no_more() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces");
    let paths = PINNED.map(|(name, _)| format!("{folder}/{name}.trace.gz"));
    let mut options: Vec<&str> = paths.iter().map(String::as_str).collect();
    options.extend(["--backend", "host", "--compare"]);
    let (rows, _) = rows_of(&options, 0);
    let (direct, elastic) = (rows_named(&rows, "direct"), rows_named(&rows, "elastic"));
    for ((name, ratio), (direct, elastic)) in PINNED.iter().zip(direct.iter().zip(&elastic)) {
        assert_eq!(direct["trace"], *name);
        let found = direct["ratio"].as_f64().unwrap();
        assert!((found - ratio).abs() < 6e-4, "{name}: {found} instead of {ratio}");
        let elastic = elastic["ratio"].as_f64().unwrap();
        assert!(elastic <= found, "{name}: {elastic} above {found}");
    }
}

fn small() -> Scratch {
    Scratch::holding("a 0 100 0\na 1 10485760 0\nf 1\nf 0\n", ".trace")
}

/// Asserts that each configuration has a row for a trace.
#[track_caller]
fn compared(option: &str, names: &[&str]) {
    let trace = small();
    let (rows, table) = rows_of(&[trace.path(), "--backend", "host", option], 0);
    let found: Vec<_> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(found, names, "{table}");
}

#[test]
fn each_kind_of_segment_has_its_rows() {
    compared("--compare", &["direct", "elastic"]);
}

#[test]
fn the_settings_of_elastic_segments_are_asked_for() {
    let names = ["direct", "elastic", "compact"];
    compared("--compare=settings", &names);
}

#[test]
fn a_row_says_which_configuration_its_name_stands_for() {
    let trace = small();
    let (rows, _) = rows_of(&[trace.path(), "--backend", "host", "--compare"], 0);
    for (name, config) in [("direct", "expandable_segments:False"), ("elastic", "default")] {
        assert_eq!(rows_named(&rows, name).len(), 1);
        for row in rows_named(&rows, name) {
            assert_eq!(row["config"], config);
        }
    }
}

#[test]
fn comparisons_that_contradict_or_do_not_exist() {
    let trace = small();
    refused(&[trace.path(), "--compare", "--config", ""], "cannot be used with");
    refused(&[trace.path(), "--compare=peers"], "[possible values: segments, settings]");
}

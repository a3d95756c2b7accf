//! `cachette conformance` runs the suite and reports it in three forms.

mod program;
#[expect(dead_code, reason = "part of it serves other tests")]
mod scratch;

use std::fs;
use std::process::{Command, Stdio};

use program::{Ran, run};
use scratch::Scratch;
use serde_json::Value;

/// A group that is quick and needs no feature.
const GROUP: &str = "errors::";

fn conformance(more: &[&str]) -> Ran {
    let mut arguments = vec!["conformance", "--backend", "host"];
    arguments.extend_from_slice(more);
    run(&arguments)
}

#[test]
fn the_text_names_every_case_and_the_totals() {
    let ran = conformance(&["--filter", GROUP, "--verbose"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("host: host "), "{ran:?}");
    let cases = &lines[1..lines.len() - 1];
    assert!(!cases.is_empty(), "{ran:?}");
    for case in cases {
        assert!(case.starts_with("  errors::"), "{case}");
    }
    let totals = format!("{} passed, 0 failed, ", cases.len());
    assert!(lines[lines.len() - 1].starts_with(&totals), "{ran:?}");
    let short = conformance(&["--filter", GROUP]);
    assert_eq!(short.stdout.lines().collect::<Vec<_>>(), [lines[0], lines[lines.len() - 1]]);
}

#[test]
fn the_first_backend_with_a_device_is_tested() {
    // Without drivers that is the host.
    assert_eq!(run(&["conformance", "--filter", GROUP]).stdout, conformance(&["--filter", GROUP]).stdout);
}

#[test]
fn the_json_names_the_device_under_test() {
    let ran = conformance(&["--device", "1", "--filter", GROUP, "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["header"]["backend"], "host");
    assert_eq!(report["header"]["ordinal"], 1);
    assert_eq!(report["totals"]["failed"], 0);
    let passed = report["totals"]["passed"].as_u64().unwrap();
    assert!(passed > 0, "{ran:?}");
    assert_eq!(report["cases"].as_array().unwrap().len() as u64, passed);
}

#[test]
fn isolated_cases_have_the_same_outcomes() {
    let outcomes = |more: &[&str]| {
        let ran = conformance(&[&["--filter", GROUP, "--format", "json"], more].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let cases = report["cases"].as_array().unwrap().clone();
        cases.iter().map(|case| (case["name"].clone(), case["outcome"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&["--isolate"]), outcomes(&[]));
}

#[test]
fn the_junit_report_goes_to_the_file_and_the_text_to_the_terminal() {
    let file = Scratch::new(".xml");
    let ran = conformance(&["--filter", GROUP, "--format", "junit", "--output", file.path(), "--verbose"]);
    let xml = fs::read_to_string(file.path()).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(xml.starts_with("<?xml version=\"1.0\""), "{xml}");
    let cases = ran.stdout.lines().filter(|line| line.starts_with("  errors::"));
    assert_eq!(xml.matches("<testcase ").count(), cases.count(), "{xml}");
}

#[test]
fn cases_with_a_second_process_find_their_way_back_into_the_program() {
    let file = Scratch::new(".json");
    let ran = conformance(&["--filter", "ipc::", "--format", "json", "--output", file.path()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(file.json()["totals"]["passed"].as_u64().unwrap() > 0, "{ran:?}");
}

/// Runs a group of cases with one descriptor to spare, so that the system refuses a second allocation.
fn starved() -> Command {
    let script = "ulimit -n 4; exec \"$0\" conformance --backend host --filter memory::";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_cachette")]);
    command
}

#[test]
fn a_failing_case_gives_exit_code_1_and_is_reported() {
    let ran = Ran::of(&starved().output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains(" ... failed: "), "{ran:?}");
    assert!(ran.stdout.contains("    promise: "), "{ran:?}");
    assert!(ran.stderr.ends_with(" cases failed\n"), "{ran:?}");
}

#[test]
fn a_reader_that_leaves_early_does_not_hide_a_failure() {
    let mut child = starved().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.ends_with(" cases failed\n"), "{ran:?}");
}

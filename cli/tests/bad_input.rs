//! Every wrong request gives exit code 2 and says what is allowed.

mod program;
#[expect(dead_code, reason = "part of it serves other tests")]
mod scratch;

use std::fs;

use program::{NO_LIBRARY, run};
use scratch::Scratch;

/// Asserts that the request is refused, with `expected` in the message and nothing on the standard output.
#[track_caller]
fn refused(arguments: &[&str], expected: &str) {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    assert!(ran.stderr.starts_with("error: ") || ran.stderr.contains("Usage: "), "{ran:?}");
    assert!(ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    assert_eq!(ran.stdout, "", "{arguments:?}");
}

/// The same for options of `conformance --backend host`.
#[track_caller]
fn refused_by_host(options: &[&str], expected: &str) {
    let mut arguments = vec!["conformance", "--backend", "host"];
    arguments.extend_from_slice(options);
    refused(&arguments, expected);
}

#[test]
fn an_unknown_command() {
    refused(&["device"], "unrecognized subcommand 'device'");
}

#[test]
fn an_unknown_format() {
    refused(&["devices", "--format", "xml"], "[possible values: text, json]");
    refused_by_host(&["--format", "xml"], "[possible values: text, json, junit]");
}

#[test]
fn an_unknown_backend() {
    for name in ["vulkan", "host:0", "HOST", ""] {
        let expected = format!("error: there is no backend named '{name}'; choose one of cuda, hip, host\n");
        refused(&["conformance", "--backend", name], &expected);
    }
}

#[test]
fn a_backend_whose_library_is_not_there() {
    for name in ["cuda", "hip"] {
        let expected = format!("the backend '{name}' cannot be used here: no driver library could be opened; tried");
        refused(&["conformance", "--backend", name], &expected);
        refused(&["conformance", "--backend", name], NO_LIBRARY);
    }
}

#[test]
fn a_device_that_is_no_number() {
    for text in ["x", "-1", "", "1.5", "4294967296"] {
        refused_by_host(&["--device", text], "a device is a whole number from 0 up");
    }
}

#[test]
fn a_device_beyond_the_last() {
    refused_by_host(&["--device", "2"], "error: there is no device host:2; it has 2 devices, numbers 0 to 1\n");
}

#[test]
fn a_malformed_filter() {
    refused_by_host(&["--filter", ""], "leave it out to run every case");
    for text in ["events poll", "Events", "-x", "events/", "é"] {
        refused_by_host(&["--filter", text], "use a-z, 0-9, '_', ':' and '*'");
    }
}

#[test]
fn a_filter_that_matches_nothing() {
    for text in ["nonsense", "events::nothing", "*::nothing"] {
        refused_by_host(
            &["--filter", text],
            &format!("error: bad --filter: no case matches '{text}'; groups are capture, "),
        );
    }
}

#[test]
fn a_report_that_cannot_be_written() {
    let path = "/nonexistent/report.xml";
    refused_by_host(&["--output", path], &format!("error: cannot write to '{path}': "));
    refused_by_host(&["--output", "/"], "name a file in a folder that exists");
}

#[test]
fn a_wrong_request_leaves_an_older_report_alone() {
    let older = Scratch::holding("older", ".xml");
    refused_by_host(&["--output", older.path(), "--filter", "nonsense"], "no case matches");
    refused_by_host(&["--output", older.path(), "--device", "9"], "no device host:9");
    assert_eq!(fs::read_to_string(older.path()).unwrap(), "older");
}

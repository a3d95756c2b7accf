//! Runs `cachette replay`.

use serde_json::Value;

use crate::program::run;
use crate::scratch::Scratch;

/// The rows that it writes with these options, and what it prints; it ends with `code`.
#[track_caller]
pub(crate) fn rows_of(options: &[&str], code: i32) -> (Vec<Value>, String) {
    let file = Scratch::new(".json");
    let arguments = [&["replay"], options, &["--json", file.path()]].concat();
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let json = file.json();
    let rows = json.as_array().expect("the results are a list");
    (rows.clone(), ran.stdout)
}

/// Asserts that the request is refused, with `expected` in the message.
#[track_caller]
pub(crate) fn refused(options: &[&str], expected: &str) {
    let arguments = [&["replay"], options].concat();
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    assert!(ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    assert_eq!(ran.stdout, "", "{arguments:?}");
}

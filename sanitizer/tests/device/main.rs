//! The sanitizer around a device of host memory.
//!
//! Planted bugs corrupt contents without the sanitizer, and are found with it. Their correct twins do neither.

#![expect(clippy::unwrap_used, reason = "the device of these tests has every feature")]

mod bed;
mod captures;
mod elsewhere;
mod findings;
mod streams;
mod threads;

use cachette_sanitizer::FindingKind;

use bed::{Program, findings, is_always_right, is_ever_corrupted};

/// Defines a program with a bug, and the same program without it, as two tests.
macro_rules! planted {
    (
        $(#[$doc:meta])*
        $name:ident: $kind:ident $(, $config:literal)?, |$bed:ident, $fixed:ident| $body:block
    ) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            crate::check(|$bed, $fixed| $body, concat!($($config)?), crate::FindingKind::$kind);
        }
    };
}
pub(crate) use planted;

/// Expects that a bug corrupts contents in some schedule and is found in every one, and that its fix does neither.
fn check(program: Program, config: &str, kind: FindingKind) {
    assert!(is_ever_corrupted(program, config), "the bug has no effect");
    assert!(is_always_right(program, config), "the correct program is wrong");
    for found in findings(program, true, config) {
        assert!(found.is_empty(), "a correct program was reported:\n{}", found[0]);
    }
    for found in findings(program, false, config) {
        let kinds: Vec<FindingKind> = found.iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&kind), "not found: {kinds:?}");
        for finding in found {
            for step in &finding.steps {
                let first = step.lines.first().map_or("", |line| &line.file);
                assert!(first.contains("sanitizer/tests/device/"), "a step without a line of the program:\n{finding}");
            }
        }
    }
}

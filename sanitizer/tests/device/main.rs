//! The sanitizer around a device of host memory.
//!
//! Planted bugs corrupt contents without the sanitizer, and are found with it. Their correct twins do neither.

#![expect(clippy::unwrap_used, reason = "the device of these tests has every feature")]

mod bed;
mod captures;
mod distinct;
mod elsewhere;
mod marks;
mod streams;
mod threads;

use cachette_sanitizer::{FindingKind, Options};

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
            struct Planted {
                fixed: bool,
            }
            impl crate::bed::Program for Planted {
                fn run<D: cachette_hal::Device + Clone + 'static>(&self, $bed: &crate::bed::Bed<D>) -> bool {
                    let $fixed = self.fixed;
                    $body
                }
            }
            let config = concat!($($config)?);
            crate::check(&Planted { fixed: false }, &Planted { fixed: true }, config, crate::FindingKind::$kind);
        }
    };
}
pub(crate) use planted;

/// Expects that the first program is corrupted in some schedule and found in every one, and the second in none.
fn check(wrong: &impl Program, right: &impl Program, config: &str, kind: FindingKind) {
    assert!(is_ever_corrupted(wrong, config), "the bug has no effect");
    assert!(is_always_right(right, config), "the correct program is wrong");
    for found in findings(right, config, &Options::default()) {
        assert!(found.is_empty(), "a correct program was reported:\n{}", found[0]);
    }
    for found in findings(wrong, config, &Options::default()) {
        let kinds: Vec<FindingKind> = found.iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&kind), "not found: {kinds:?}");
        for finding in found {
            assert!(finding.steps.iter().all(|step| !step.lines.is_empty()), "a step without a line:\n{finding}");
        }
    }
}

//! The suite as a test program for `cargo test` and nextest.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::case::Case;
use crate::exit::exit_if_hung;
use crate::fixture::Fixture;
use crate::report::Outcome;
use crate::runner::{Bench, LIMIT, RunError};
use crate::{cases, child};

/// The `main` of a test program that runs every case against `fixture`.
///
/// A case that cannot run is listed as ignored, with the reason before its name.
#[must_use]
pub fn main(fixture: Fixture) -> ExitCode {
    let fixture = Arc::new(fixture);
    child::play_if_child(&fixture);
    let mut arguments = Arguments::from_args();
    if !fixture.is_isolated {
        arguments.test_threads = Some(1);
    }
    let trials = match Bench::open(&fixture, None) {
        Ok(bench) => {
            let bench = Arc::new(bench);
            cases().iter().map(|case| trial(&bench, case)).collect()
        }
        Err(error) => cases().iter().map(|case| absent(case, &error, &fixture)).collect(),
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    exit_if_hung(if conclusion.has_failed() { 101 } else { 0 });
    conclusion.exit_code()
}

/// Returns a case of an open backend. One that cannot run is listed as ignored, and fails with the reason if run.
fn trial(bench: &Arc<Bench>, case: &'static Case) -> Trial {
    let obstacle = bench.obstacle(case);
    let bench = Arc::clone(bench);
    let trial = Trial::ignorable_test(case.name, move || {
        let outcome = bench.run(case, LIMIT).outcome;
        match outcome {
            Outcome::Passed => Ok(Completion::Completed),
            Outcome::Skipped { .. } | Outcome::Deviates { .. } => Ok(Completion::ignored_with(outcome)),
            Outcome::Failed { .. } | Outcome::DeviationGone { .. } => {
                Err(Failed::from(format!("{outcome}\npromise: {}", case.about)))
            }
        }
    });
    match obstacle {
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
        None => trial,
    }
}

/// Returns a case of a backend that did not open: ignored if that is expected, failing otherwise.
fn absent(case: &'static Case, error: &RunError, fixture: &Fixture) -> Trial {
    let text = error.to_string();
    if !fixture.may_be_absent {
        return Trial::test(case.name, move || Err(Failed::from(text)));
    }
    let reason = text.clone();
    Trial::ignorable_test(case.name, move || Ok(Completion::ignored_with(text)))
        .with_kind(reason)
        .with_ignored_flag(true)
}

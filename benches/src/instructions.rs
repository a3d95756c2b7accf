//! Instructions a pair.
//!
//! A program runs itself under callgrind twice, with n and with 2n pairs, and divides the difference by n: start and
//! end of the process cancel out.

mod callgrind;
mod case;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

pub(crate) use callgrind::count_run;
pub use callgrind::{CallgrindError, count};
pub use case::Case;

/// What was counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// The name of the case.
    pub workload: &'static str,
    /// Instructions for allocating once and freeing once.
    pub instructions_per_pair: f64,
    /// The most that are allowed.
    pub bound: u32,
}

impl Count {
    /// Whether the count is within its bound.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.instructions_per_pair <= f64::from(self.bound)
    }
}

/// Counts a case, by running it twice.
#[expect(clippy::cast_precision_loss, reason = "the counts are far below 2^53")]
pub fn measure(case: Case) -> Result<Count, CallgrindError> {
    let (once, twice) = (count(case, false)?, count(case, true)?);
    let more = twice.saturating_sub(once) as f64;
    Ok(Count { workload: case.name(), instructions_per_pair: more / case.pairs() as f64, bound: case.bound() })
}

/// The cases whose name contains `filter`; an error if there is none, or if the code is not optimised.
pub fn select<C: Copy>(all: &[C], name: impl Fn(C) -> &'static str, filter: &str) -> Result<Vec<C>, Box<dyn Error>> {
    if cfg!(debug_assertions) {
        return Err("these figures are about optimised code; build with --release".into());
    }
    let chosen: Vec<C> = all.iter().copied().filter(|case| name(*case).contains(filter)).collect();
    if chosen.is_empty() { Err(format!("no case has '{filter}' in its name").into()) } else { Ok(chosen) }
}

/// The exit code of a program that counts: 1 if a bound does not hold, 2 if nothing could be counted.
#[must_use]
pub fn exit_code(ended: Result<bool, Box<dyn Error>>) -> ExitCode {
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            // If this fails too, the error cannot be reported.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_up_to_itself() {
        let count = |instructions_per_pair, bound| Count { workload: "pair", instructions_per_pair, bound };
        assert!(count(250.0, 250).holds());
        assert!(!count(250.1, 250).holds());
    }
}

//! Instructions of an operation, as the number of streams, pools, blocks and other things around it grows.
//!
//! A program runs itself under callgrind with each number, and counts only what happens inside [`measured`].

mod case;

use std::hint;

use serde::Serialize;

pub use case::Growing;

use crate::instructions::{CallgrindError, count_run};

/// Each number is twice the one before.
pub const NUMBERS: [u32; 6] = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000];

/// The most that an operation may grow by with each doubling.
pub const MOST_GROWTH: f64 = 1.3;

/// The counts of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// The name of the case.
    pub case: &'static str,
    /// Instructions of one operation, with each of the [`NUMBERS`] that were counted.
    pub instructions: Vec<f64>,
    /// Why it may grow, if it may.
    pub reason: Option<&'static str>,
}

impl Growth {
    /// The largest growth between two numbers.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.instructions.windows(2).map(|pair| pair[1] / pair[0]).fold(0.0, f64::max)
    }

    /// Whether the growth is within its bound, or has a reason.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.reason.is_some() || self.largest() <= MOST_GROWTH
    }
}

/// Counts a case with every number up to `most`.
pub fn measure(case: Growing, most: u32) -> Result<Growth, CallgrindError> {
    let mut instructions = Vec::new();
    for number in NUMBERS.into_iter().filter(|number| *number <= most) {
        let arguments = ["--run", case.name, "--number", &number.to_string()];
        let count = count_run(case.name, Some("growth::measured"), &arguments)?;
        #[expect(clippy::cast_precision_loss, reason = "the counts are far below 2^53")]
        instructions.push(count as f64 / f64::from(number));
    }
    Ok(Growth { case: case.name, instructions, reason: case.reason })
}

/// Calls `act`. Only this call is counted.
#[inline(never)]
pub fn measured(act: &mut dyn FnMut()) {
    act();
    // The call above is no jump, so that callgrind sees its end.
    hint::black_box(());
}

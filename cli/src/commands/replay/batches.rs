//! The largest batch that fits, estimated from runs of several batch sizes.
//!
//! The memory of a training step is that of the weights, and a constant for each sample. So a straight line through the
//! runs gives the memory of other batches. Fragmentation is what bends it, and the distances from the line measure that.

use std::io::{self, Write};

use cachette::human::Bytes;
use serde::Serialize;

use super::capacity::Answer;
use crate::error::CliError;

/// No batch is larger.
const MOST: u32 = 1 << 24;
/// How many standard deviations the uncertainty spans.
const DEVIATIONS: f64 = 2.0;

/// Reads one number of `--batch`.
pub(super) fn batch(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|batch| (1..=MOST).contains(batch));
    number.ok_or_else(|| format!("a batch is a whole number from 1 to {MOST}"))
}

/// Checks that every run has its own batch, if there are batches.
pub(super) fn check(batches: &[u32], traces: usize) -> Result<(), CliError> {
    let mut different = batches.to_vec();
    different.sort_unstable();
    different.dedup();
    if !batches.is_empty() && (batches.len() != traces || different.len() != traces) {
        return Err(CliError::Batches { batches: batches.len(), traces });
    }
    Ok(())
}

/// The largest batch that fits with one allocator.
#[derive(Debug, Serialize)]
pub(super) struct Estimate {
    allocator: &'static str,
    device_size: u64,
    /// The batches of the runs.
    recorded: Vec<u32>,
    /// 0 if not even one sample fits; `None` if memory does not grow with the batch.
    largest: Option<u32>,
    /// The same at both ends of the uncertainty; `None` with fewer than three runs.
    least: Option<u32>,
    most: Option<u32>,
}

/// Returns an estimate for each allocator, if there are at least two batches.
pub(super) fn estimate(answers: &[Answer], batches: &[u32], device_size: u64) -> Vec<Estimate> {
    if batches.len() < 2 {
        return Vec::new();
    }
    let allocators = answers.len() / batches.len();
    (0..allocators)
        .filter_map(|first| {
            let runs = answers[first..].iter().step_by(allocators);
            let points: Option<Vec<(f64, f64)>> = batches
                .iter()
                .zip(runs)
                .map(|(batch, run)| Some((f64::from(*batch), as_number(run.needed?))))
                .collect();
            let line = Line::through(&points?);
            let size = as_number(device_size);
            let spread = (batches.len() > 2).then_some(DEVIATIONS);
            Some(Estimate {
                allocator: answers[first].allocator,
                device_size,
                recorded: batches.to_vec(),
                largest: line.largest(size, 0.0),
                least: spread.and_then(|spread| line.largest(size, spread)),
                most: spread.and_then(|spread| line.largest(size, -spread)),
            })
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "an estimate needs far fewer digits than are kept")]
fn as_number(bytes: u64) -> f64 {
    bytes as f64
}

/// The straight line with the least squares of distances.
#[derive(Debug)]
struct Line {
    constant: f64,
    slope: f64,
    /// The standard deviation of the points around the line; 0 for two points.
    deviation: f64,
    count: f64,
    mean: f64,
    /// The sum of squared distances of the batches from their mean.
    squares: f64,
}

impl Line {
    /// `points` has at least two, with different batches.
    fn through(points: &[(f64, f64)]) -> Self {
        let count = points.iter().map(|_| 1.0).sum::<f64>();
        let mean = points.iter().map(|(batch, _)| batch).sum::<f64>() / count;
        let middle = points.iter().map(|(_, bytes)| bytes).sum::<f64>() / count;
        let squares = points.iter().map(|(batch, _)| (batch - mean).powi(2)).sum::<f64>();
        let slope = points.iter().map(|(batch, bytes)| (batch - mean) * (bytes - middle)).sum::<f64>() / squares;
        let constant = middle - slope * mean;
        let errors = points.iter().map(|(batch, bytes)| (bytes - constant - slope * batch).powi(2)).sum::<f64>();
        let deviation = if count > 2.0 { (errors / (count - 2.0)).sqrt() } else { 0.0 };
        Self { constant, slope, deviation, count, mean, squares }
    }

    /// The memory of a batch, `spread` standard deviations of a prediction above the line.
    fn bytes(&self, batch: u32, spread: f64) -> f64 {
        let batch = f64::from(batch);
        let prediction = (1.0 + 1.0 / self.count + (batch - self.mean).powi(2) / self.squares).sqrt();
        self.constant + self.slope * batch + spread * self.deviation * prediction
    }

    /// The largest batch whose memory is at most `size`; `None` if memory does not grow.
    fn largest(&self, size: f64, spread: f64) -> Option<u32> {
        if self.slope <= 0.0 {
            return None;
        }
        let (mut fits, mut beyond) = (0, MOST + 1);
        while beyond - fits > 1 {
            let middle = fits.midpoint(beyond);
            if self.bytes(middle, spread) <= size { fits = middle } else { beyond = middle }
        }
        Some(fits)
    }
}

/// Writes the largest batch of each allocator.
pub(super) fn write(out: &mut dyn Write, estimates: &[Estimate]) -> io::Result<()> {
    let Some(first) = estimates.first() else { return Ok(()) };
    writeln!(
        out,
        "the largest batch in {}, by a line through {} runs:",
        Bytes(first.device_size),
        first.recorded.len()
    )?;
    for estimate in estimates {
        writeln!(out, "  {}", estimate.words())?;
    }
    let known = first.recorded.iter().max();
    if estimates.iter().any(|estimate| estimate.largest.as_ref() > known) {
        writeln!(out, "A larger batch than was recorded is a guess: record a run near it.")?;
    }
    if first.recorded.len() == 2 {
        writeln!(out, "Two runs show no uncertainty: record a third of another batch.")?;
    }
    Ok(())
}

impl Estimate {
    fn words(&self) -> String {
        let allocator = self.allocator;
        match (self.largest, self.least, self.most) {
            (None, ..) => format!("{allocator}: unknown, since memory does not grow with the batch"),
            (Some(largest), Some(least), Some(most)) => format!("{allocator}: {largest} (from {least} to {most})"),
            (Some(largest), ..) => format!("{allocator}: {largest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_on_a_line_give_its_batch_without_uncertainty() {
        let line = Line::through(&[(8.0, 18.0), (16.0, 26.0), (32.0, 42.0)]);
        assert_eq!(line.largest(100.5, 0.0), Some(90));
        assert_eq!(line.largest(100.5, DEVIATIONS), Some(90));
        assert_eq!(line.largest(10.0, 0.0), Some(0));
    }

    #[test]
    fn runs_beside_the_line_give_a_range_around_the_batch() {
        let line = Line::through(&[(8.0, 19.0), (16.0, 24.0), (32.0, 43.0)]);
        let [least, largest, most] = [DEVIATIONS, 0.0, -DEVIATIONS].map(|spread| line.largest(60.0, spread).unwrap());
        assert!(least < largest && largest < most, "{least} {largest} {most}");
    }

    #[test]
    fn memory_that_does_not_grow_gives_no_batch() {
        assert_eq!(Line::through(&[(8.0, 20.0), (16.0, 20.0)]).largest(100.0, 0.0), None);
    }

    #[test]
    fn a_batch_is_a_number_from_one() {
        assert_eq!(batch("32"), Ok(32));
        for text in ["", "0", "-1", "1.5", "x", "16777217"] {
            assert!(batch(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_run_has_its_own_batch() {
        assert!(check(&[], 2).is_ok());
        assert!(check(&[8, 16], 2).is_ok());
        assert!(check(&[8], 2).is_err());
        assert!(check(&[8, 8], 2).is_err());
    }
}

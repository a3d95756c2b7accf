//! The steps of a stepped round, in a form that can be shortened and run again.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Mutex;

use crate::kind::Kind;

/// The variable that names the steps to take.
pub(crate) const STEPS: &str = "CACHETTE_STEPS";

/// Numbers of steps, as in `0-17,20`; all of them by default.
#[derive(Debug)]
pub(crate) struct Selection(Vec<RangeInclusive<u64>>);

impl Selection {
    /// The steps that were asked for.
    pub(crate) fn of_environment() -> Self {
        let Ok(text) = std::env::var(STEPS) else {
            return Self(vec![0..=u64::MAX]);
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        Self(ranges.unwrap_or_else(|| panic!("{STEPS} is '{text}'; set it to numbers and ranges such as 0-17,20")))
    }

    pub(crate) fn has(&self, step: u64) -> bool {
        self.0.iter().any(|range| range.contains(&step))
    }
}

/// A step that was begun: its number, and the worker.
type Begun = (u64, usize, &'static str);

/// What a round has done so far.
///
/// Each step of a stepped round draws its own numbers, so the others stay the same without it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) kind: Kind,
    begun: Mutex<Vec<Begun>>,
}

impl Program {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, begun: Mutex::default() }
    }

    /// Writes down a step of a worker.
    pub(crate) fn begin(&self, step: u64, worker: usize) {
        self.steps().push((step, worker, ""));
    }

    /// Names the last step.
    pub(crate) fn name(&self, name: &'static str) {
        if let Some((.., last)) = self.steps().last_mut() {
            *last = name;
        }
    }

    fn steps(&self) -> std::sync::MutexGuard<'_, Vec<Begun>> {
        self.begun.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The steps, and a command that takes them again.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (steps, seed) = (self.steps(), self.kind.seed);
        for (step, worker, name) in steps.iter() {
            writeln!(f, "step {step}: worker {worker}: {name}")?;
        }
        if steps.is_empty() {
            return write!(f, "repeat it with CACHETTE_SEED={seed} cargo test -p cachette --test stress threads");
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (step, ..) in steps.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *step => *last = *step,
                _ => ranges.push((*step, *step)),
            }
        }
        let text = |(first, last): &(u64, u64)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        let ranges: Vec<String> = ranges.iter().map(text).collect();
        let ranges = ranges.join(",");
        write!(
            f,
            "repeat it with CACHETTE_SEED={seed} {STEPS}={ranges} cargo test -p cachette --test stress any_order"
        )?;
        write!(f, "; leave steps out to shorten it")
    }
}

//! Traces replayed through the allocator.

mod expandable;
mod failure;
mod fit;
mod player;

use std::sync::Arc;
use std::time::Duration;

use cachette::{Allocator, Config, Stats};
use cachette_hal::traced::Counts;
use cachette_hal::traced::Traced;
use cachette_hal::{AnyDevice, Call};
use serde::Serialize;

pub use failure::{Failure, Pass};
pub use fit::{FIT_STEP, Fit, fit, fit_pytorch_expandable};

use crate::trace::Trace;
use player::Player;

/// How often [`replay`] goes through a trace.
pub const PASSES: usize = 3;

/// What a replay needed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Operations of the trace.
    pub operations: usize,
    /// The most bytes live at once, before rounding; of the whole trace.
    pub peak_requested: u64,
    /// The most bytes live at once, after rounding; of the first pass, as are all that do not say otherwise.
    pub peak_allocated: u64,
    /// The most bytes held from the device.
    pub peak_reserved: u64,
    /// `peak_reserved / peak_requested`; not a number where nothing was requested.
    pub ratio: f64,
    /// Nanoseconds an operation in an empty allocator, driver calls included; `None` if it failed.
    pub cold_ns_per_op: Option<f64>,
    /// Nanoseconds an operation when the same is asked again; `None` if it failed.
    pub warm_ns_per_op: Option<f64>,
    /// Nanoseconds an operation when the same is asked a third time, driver calls included; `None` if it failed.
    pub steady_ns_per_op: Option<f64>,
    /// Calls that reached the driver.
    pub driver_calls: u64,
    /// Calls that reached the driver in the third pass; `None` if it failed.
    pub steady_driver_calls: Option<u64>,
    /// Chunks of elastic segments that were made.
    pub created_chunks: u64,
    /// Chunks of elastic segments that were mapped at a new place.
    pub moved_chunks: u64,
    /// Chunks that were made in the third pass; `None` if it failed.
    pub steady_created_chunks: Option<u64>,
    /// Chunks that were mapped at a new place in the third pass; `None` if it failed.
    pub steady_moved_chunks: Option<u64>,
    /// The limit that the allocator had to keep; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Why the replay ended early; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "failure::as_text")]
    pub error: Option<Failure>,
}

/// Replays `trace` three times in a new allocator of `device` that behaves as `config` says and holds no more than
/// `limit` bytes.
///
/// `progress` is called now and then with the number of further operations; all together, [`PASSES`] times those of the
/// trace.
pub fn replay(
    trace: &Trace,
    device: &AnyDevice,
    config: &Config,
    limit: Option<u64>,
    progress: &mut dyn FnMut(usize),
) -> Outcome {
    let (allocator, counts) = allocator(device, config, limit);
    let (operations, peak_requested) = (trace.operations.len(), trace.peak_requested);
    let mut outcome = Outcome { operations, peak_requested, limit, ..Outcome::default() };
    let ended = Player::new(&allocator, trace).and_then(|player| {
        let before = Spent::until_now(&counts);
        let cold = player.play(Pass::First, progress);
        outcome.note_cold(Spent::since(before, &counts));
        outcome.note_peaks(&allocator.stats());
        outcome.cold_ns_per_op = Some(ns_each(cold?, outcome.operations));
        let warm = player.play(Pass::Second, progress)?;
        outcome.warm_ns_per_op = Some(ns_each(warm, outcome.operations));
        let before = Spent::until_now(&counts);
        let steady = player.play(Pass::Third, progress)?;
        outcome.note_steady(Spent::since(before, &counts));
        outcome.steady_ns_per_op = Some(ns_each(steady, outcome.operations));
        Ok(())
    });
    outcome.error = ended.err();
    outcome
}

/// An empty allocator, and the calls it makes.
fn allocator(device: &AnyDevice, config: &Config, limit: Option<u64>) -> (Allocator, Arc<Counts>) {
    let counts = Arc::new(Counts::new());
    let device: AnyDevice = Arc::new(Traced::new(Arc::clone(device), Arc::clone(&counts)));
    let allocator = Allocator::with_config(device, config);
    // Without one, that of the configuration stays.
    if limit.is_some() {
        allocator.set_memory_limit(limit);
    }
    (allocator, counts)
}

impl Outcome {
    const fn note_cold(&mut self, spent: Spent) {
        self.driver_calls = spent.calls;
        self.created_chunks = spent.created;
        self.moved_chunks = spent.moved();
    }

    const fn note_steady(&mut self, spent: Spent) {
        self.steady_driver_calls = Some(spent.calls);
        self.steady_created_chunks = Some(spent.created);
        self.steady_moved_chunks = Some(spent.moved());
    }

    fn note_peaks(&mut self, stats: &Stats) {
        self.peak_allocated = stats.allocated_bytes.all.peak;
        self.peak_reserved = stats.reserved_bytes.all.peak;
        self.ratio = ratio(self.peak_reserved, self.peak_requested);
    }
}

/// What was asked of the driver.
#[derive(Clone, Copy, Debug)]
struct Spent {
    calls: u64,
    created: u64,
    mapped: u64,
}

impl Spent {
    fn until_now(counts: &Counts) -> Self {
        let done = |call| counts.of(call) - counts.failures_of(call);
        Self { calls: counts.total(), created: done(Call::CreateBacking), mapped: done(Call::Map) }
    }

    fn since(before: Self, counts: &Counts) -> Self {
        let now = Self::until_now(counts);
        Self {
            calls: now.calls - before.calls,
            created: now.created - before.created,
            mapped: now.mapped - before.mapped,
        }
    }

    /// Every chunk is mapped once when it is made, and once more whenever it moves.
    const fn moved(self) -> u64 {
        self.mapped.saturating_sub(self.created)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs far fewer digits than are kept")]
fn ratio(bytes: u64, requested: u64) -> f64 {
    bytes as f64 / requested as f64
}

/// The share of each of `count` in `took`, in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "a mean needs far fewer digits than are kept")]
#[must_use]
pub fn ns_each(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() * 1e9 / count as f64
}

#[cfg(test)]
mod tests;

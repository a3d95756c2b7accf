//! Traces replayed through the allocator.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cachette::{Allocation, Allocator, Config, Error, Stats, Stream};
use cachette_hal::traced::Counts;
use cachette_hal::{AnyDevice, Traced};
use serde::Serialize;

use crate::trace::{Operation, Trace};
use crate::workload::ns_each;

/// Operations between two reports of progress, which are not timed.
const REPORT_EVERY: usize = 1 << 16;

type Device = Traced<AnyDevice>;

/// What a replay needed.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Operations of the trace.
    pub operations: usize,
    /// The most bytes live at once, before rounding; of the whole trace.
    pub peak_requested: u64,
    /// The most bytes live at once, after rounding; of the first pass, as are all that follow.
    pub peak_allocated: u64,
    /// The most bytes held from the device.
    pub peak_reserved: u64,
    /// `peak_reserved / peak_requested`; not a number where nothing was requested.
    pub ratio: f64,
    /// Nanoseconds an operation in an empty allocator, driver calls included; `None` if it failed.
    pub cold_ns_per_op: Option<f64>,
    /// Nanoseconds an operation when the same is asked again; `None` if it failed.
    pub warm_ns_per_op: Option<f64>,
    /// Calls that reached the driver.
    pub driver_calls: u64,
    /// Why the replay ended early; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub error: Option<Failure>,
}

/// Where a replay ended early, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The operation, counted from 1, which is its line in the trace; 0 if it never began.
    pub operation: usize,
    /// Whether it was the first pass.
    pub cold: bool,
    /// What the allocator answered.
    pub error: Error,
}

impl Failure {
    /// Whether memory was wanting.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self.error, Error::OutOfMemory(_) | Error::TooLarge { .. })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = if self.cold { "first" } else { "second" };
        write!(
            f,
            "operation {} of the {pass} pass failed: {}",
            self.operation, self.error
        )
    }
}

/// Replays `trace` twice in a new allocator of `device` that behaves as `config` says.
///
/// `progress` is told now and then how many more operations are done; all together, twice those of the trace.
pub fn replay(
    trace: &Trace,
    device: &AnyDevice,
    config: &Config,
    progress: &mut dyn FnMut(usize),
) -> Outcome {
    let counts = Arc::new(Counts::new());
    let device = Traced::new(Arc::clone(device), Arc::clone(&counts));
    let allocator = Allocator::with_config(device, config);
    let mut outcome = Outcome::before(trace);
    let ended = Player::new(&allocator, trace).and_then(|player| {
        let before = counts.total();
        let cold = player.play(true, progress);
        outcome.driver_calls = counts.total() - before;
        outcome.note_peaks(&allocator.stats());
        outcome.cold_ns_per_op = Some(ns_each(cold?, outcome.operations));
        let warm = player.play(false, progress)?;
        outcome.warm_ns_per_op = Some(ns_each(warm, outcome.operations));
        Ok(())
    });
    outcome.error = ended.err();
    outcome
}

impl Outcome {
    /// What is known from the trace alone.
    const fn before(trace: &Trace) -> Self {
        Self {
            operations: trace.operations.len(),
            peak_requested: trace.peak_requested,
            peak_allocated: 0,
            peak_reserved: 0,
            ratio: 0.0,
            cold_ns_per_op: None,
            warm_ns_per_op: None,
            driver_calls: 0,
            error: None,
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a ratio needs far fewer digits than are kept"
    )]
    fn note_peaks(&mut self, stats: &Stats) {
        self.peak_allocated = stats.allocated_bytes.all.peak;
        self.peak_reserved = stats.reserved_bytes.all.peak;
        self.ratio = self.peak_reserved as f64 / self.peak_requested as f64;
    }
}

/// Asks the allocator for what a trace says.
struct Player<'a> {
    trace: &'a Trace,
    allocator: &'a Allocator<Device>,
    streams: Vec<Stream<Device>>,
}

impl<'a> Player<'a> {
    fn new(allocator: &'a Allocator<Device>, trace: &'a Trace) -> Result<Self, Failure> {
        let streams = (0..trace.streams).map(|_| allocator.create_stream());
        let streams = streams.collect::<Result<_, Error>>();
        Ok(Self {
            trace,
            allocator,
            streams: streams.map_err(|error| Failure {
                operation: 0,
                cold: true,
                error,
            })?,
        })
    }

    /// How long the trace took. What it leaves live is freed afterwards, untimed.
    fn play(&self, cold: bool, progress: &mut dyn FnMut(usize)) -> Result<Duration, Failure> {
        let mut live: Vec<Option<Allocation<Device>>> = Vec::new();
        live.resize_with(self.trace.slots, || None);
        let mut took = Duration::ZERO;
        for (part, operations) in self.trace.operations.chunks(REPORT_EVERY).enumerate() {
            let start = Instant::now();
            for (i, operation) in operations.iter().enumerate() {
                self.step(*operation, &mut live).map_err(|error| Failure {
                    operation: part * REPORT_EVERY + i + 1,
                    cold,
                    error,
                })?;
            }
            took += start.elapsed();
            progress(operations.len());
        }
        Ok(took)
    }

    #[inline]
    fn step(
        &self,
        operation: Operation,
        live: &mut [Option<Allocation<Device>>],
    ) -> Result<(), Error> {
        match operation {
            Operation::Allocate {
                slot,
                stream,
                bytes,
            } => {
                let stream = &self.streams[stream as usize];
                live[slot as usize] = Some(self.allocator.allocate(bytes, stream)?);
            }
            Operation::Free { slot } => live[slot as usize] = None,
        }
        Ok(())
    }
}

#[expect(
    clippy::ref_option,
    reason = "the signature that the derived code calls"
)]
fn as_text<S: serde::Serializer>(error: &Option<Failure>, out: S) -> Result<S::Ok, S::Error> {
    match error {
        Some(failure) => out.collect_str(failure),
        None => out.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use cachette_hal::Ordinal;

    use super::*;
    use crate::Target;

    const MIB: u64 = 1 << 20;

    /// 10 MiB, freed and asked for again; 100 bytes on another stream, never freed.
    fn trace() -> Trace {
        let allocate = |slot, stream, bytes| Operation::Allocate {
            slot,
            stream,
            bytes,
        };
        Trace {
            name: "small".into(),
            operations: vec![
                allocate(0, 0, 10 * MIB),
                Operation::Free { slot: 0 },
                allocate(0, 0, 10 * MIB),
                allocate(1, 1, 100),
            ],
            slots: 2,
            streams: 2,
            peak_requested: 10 * MIB + 100,
        }
    }

    fn replayed(capacity: u64, config: &str) -> (Outcome, usize, Target) {
        let target = Target::host(Ordinal(0), capacity).unwrap();
        let mut done = 0;
        let config = config.parse().unwrap();
        let outcome = replay(&trace(), &target.device, &config, &mut |more| done += more);
        (outcome, done, target)
    }

    #[test]
    fn the_figures_are_those_of_the_allocator() {
        let (outcome, done, target) = replayed(1 << 30, "");
        assert_eq!(outcome.operations, 4);
        assert_eq!(outcome.peak_requested, 10 * MIB + 100);
        assert_eq!(outcome.peak_allocated, 10 * MIB + 512);
        // One segment of 10 MiB and one of 2 MiB, each a call to the driver.
        assert_eq!(outcome.peak_reserved, 12 * MIB);
        assert_eq!(outcome.driver_calls, 2);
        assert!((outcome.ratio - 1.2).abs() < 1e-3, "{outcome:?}");
        assert!(outcome.cold_ns_per_op.is_some_and(|ns| ns > 0.0));
        assert!(outcome.warm_ns_per_op.is_some_and(|ns| ns > 0.0));
        assert_eq!(outcome.error, None);
        assert_eq!(done, 8);
        let memory = target.device.memory_info().unwrap();
        assert_eq!(memory.free, memory.total, "the replay kept memory");
    }

    #[test]
    fn running_out_of_memory_keeps_the_figures_so_far() {
        let (outcome, _, target) = replayed(11 * MIB, "");
        let failure = outcome.error.clone().unwrap();
        assert_eq!((failure.operation, failure.cold), (4, true));
        assert!(failure.is_out_of_memory());
        assert_eq!(outcome.peak_reserved, 10 * MIB);
        assert_eq!(
            (outcome.cold_ns_per_op, outcome.warm_ns_per_op),
            (None, None)
        );
        let memory = target.device.memory_info().unwrap();
        assert_eq!(memory.free, memory.total, "the replay kept memory");
    }

    #[test]
    fn the_configuration_is_obeyed() {
        let (outcome, ..) = replayed(1 << 30, "memory_limit:4M");
        let failure = outcome.error.unwrap();
        assert_eq!(failure.operation, 1);
        assert!(
            failure
                .to_string()
                .starts_with("operation 1 of the first pass failed: out of")
        );
    }

    #[test]
    fn the_keys_are_those_promised() {
        let (good, ..) = replayed(1 << 30, "");
        let keys = |outcome: &Outcome| {
            let value = serde_json::to_value(outcome).unwrap();
            let keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.join(" ")
        };
        let promised = "cold_ns_per_op driver_calls operations peak_allocated peak_requested peak_reserved \
                        ratio warm_ns_per_op";
        assert_eq!(keys(&good), promised);
        let (bad, ..) = replayed(MIB, "");
        assert!(keys(&bad).contains(" error "), "{}", keys(&bad));
    }
}

//! Runs a trace on an allocator.

use std::time::{Duration, Instant};

use cachette::{Allocation, Allocator, Error, Stream};

use super::{Failure, Pass};
use crate::trace::{Operation, Trace};

/// Operations between two reports of progress, which are not timed.
const REPORT_EVERY: usize = 1 << 16;

/// A trace, and the allocator that is asked.
pub(super) struct Player<'a> {
    trace: &'a Trace,
    allocator: &'a Allocator,
    streams: Vec<Stream>,
}

impl<'a> Player<'a> {
    pub(super) fn new(allocator: &'a Allocator, trace: &'a Trace) -> Result<Self, Failure> {
        let streams = (0..trace.streams).map(|_| allocator.create_stream());
        let streams = streams.collect::<Result<_, Error>>();
        Ok(Self {
            trace,
            allocator,
            streams: streams.map_err(|error| Failure { pass: Pass::First, operation: 0, error })?,
        })
    }

    /// How long the trace took. What it leaves live is freed afterwards, untimed.
    pub(super) fn play(&self, pass: Pass, progress: &mut dyn FnMut(usize)) -> Result<Duration, Failure> {
        let mut live: Vec<Option<Allocation>> = Vec::new();
        live.resize_with(self.trace.slots, || None);
        let mut took = Duration::ZERO;
        for (part, operations) in self.trace.operations.chunks(REPORT_EVERY).enumerate() {
            let start = Instant::now();
            for (i, operation) in operations.iter().enumerate() {
                self.step(*operation, &mut live).map_err(|error| Failure {
                    pass,
                    operation: part * REPORT_EVERY + i + 1,
                    error,
                })?;
            }
            took += start.elapsed();
            progress(operations.len());
        }
        Ok(took)
    }

    #[inline]
    fn step(&self, operation: Operation, live: &mut [Option<Allocation>]) -> Result<(), Error> {
        match operation {
            Operation::Allocate { slot, stream, bytes } => {
                let stream = &self.streams[stream as usize];
                live[slot as usize] = Some(self.allocator.allocate(bytes, stream)?);
            }
            Operation::Free { slot } => live[slot as usize] = None,
        }
        Ok(())
    }
}

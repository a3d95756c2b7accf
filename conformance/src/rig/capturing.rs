//! A capture with an owner.

use std::collections::HashSet;

use cachette_hal::{CaptureMode, CaptureNode, CaptureStatus, Device, Error, ErrorKind, Result};

use super::expect::refuse;
use super::subject::KIB;
use super::{AsStream, Graph, Place, Stream, Subject};
use crate::failure::{Stop, Verdict};

/// A capture that ends with its owner, so that a failed case leaves none behind.
#[derive(Debug)]
pub(crate) struct Capturing<'s> {
    on: &'s Subject,
    stream: &'s Stream,
    ended: bool,
}

impl<'s> Capturing<'s> {
    pub(crate) fn begin(on: &'s Subject, stream: &'s Stream, mode: CaptureMode) -> Result<Self> {
        let capture = on.device.capture()?;
        // SAFETY: 1. the stream's owner lives.
        unsafe { capture.begin_capture(stream.get(), mode) }?;
        Ok(Self { on, stream, ended: false })
    }

    /// Ends the capture.
    ///
    /// The graph uses only memory of owners that the case created before it, so they outlive it.
    pub(crate) fn end(mut self) -> Result<Graph> {
        self.finish()
    }

    /// Ends the capture after a forbidden call that breaks it.
    #[track_caller]
    pub(crate) fn break_by<T>(self, call: impl FnOnce() -> Result<T>, what: &str) -> Verdict {
        let forbidden = call();
        let ended = self.end();
        refuse(forbidden, &[ErrorKind::CaptureForbids], what)?;
        refuse(ended, &[ErrorKind::CaptureBroken], "the end of the broken capture").map(drop)
    }

    fn finish(&mut self) -> Result<Graph> {
        self.ended = true;
        // SAFETY: 1. the stream's owner lives. 3 and 4. Cases create what they capture before the graph, and drop in
        // reverse order.
        unsafe { Graph::end_capture(self.on.device.clone(), self.stream.get()) }
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // The case has already failed, or expects the capture to be broken.
            let _ = self.finish();
        }
    }
}

impl Subject {
    /// Captures a fill and what `act` does, and checks that the graph runs.
    #[track_caller]
    pub(crate) fn expect_whole(&self, mode: CaptureMode, act: impl FnOnce(&Stream) -> Verdict) -> Verdict {
        let (area, stream) = (self.filled(64 * KIB, 1)?, self.stream()?);
        let capturing = Capturing::begin(self, &stream, mode)?;
        self.fill(area.span(), 7, &stream)?;
        act(&stream)?;
        run(&capturing.end()?, &stream)?;
        self.expect_byte(area.span(), 7, "what the graph wrote")
    }

    pub(crate) fn capture_status(&self, stream: &impl AsStream) -> Result<CaptureStatus> {
        let capture = self.device.capture()?;
        // SAFETY: 1. the stream lives.
        unsafe { capture.capture_status(stream.handle()) }
    }

    /// The state of a stream's capture, and the stream's frontier. Skips the case if the driver lacks this query.
    pub(crate) fn frontier(&self, stream: &impl AsStream) -> Verdict<(CaptureStatus, Vec<CaptureNode>)> {
        let capture = self.device.capture()?;
        let mut nodes = Vec::new();
        // SAFETY: 1. the stream lives.
        let status = unsafe { capture.frontier(stream.handle(), &mut nodes) };
        Ok((status.map_err(unless_unsupported)?, nodes))
    }

    /// The nodes that finish before the stream's next work begins. Skips the case if the driver lacks this query.
    pub(crate) fn reach(&self, stream: &impl AsStream) -> Verdict<HashSet<CaptureNode>> {
        let capture = self.device.capture()?;
        let (_, mut ahead) = self.frontier(stream)?;
        let mut reached = HashSet::new();
        while let Some(node) = ahead.pop() {
            if reached.insert(node) {
                // SAFETY: 1. the stream's capture is active, and contains the node.
                unsafe { capture.dependencies(node, &mut ahead) }.map_err(unless_unsupported)?;
            }
        }
        Ok(reached)
    }
}

pub(crate) fn run(graph: &Graph, stream: &Stream) -> Result<()> {
    graph.launch(stream)?;
    stream.synchronize()
}

/// Converts the error of a query of nodes, which a driver need not support.
fn unless_unsupported(error: Error) -> Stop {
    match error.kind() {
        ErrorKind::Unsupported => Stop::skipped(error.to_string()),
        _ => Stop::from(error),
    }
}

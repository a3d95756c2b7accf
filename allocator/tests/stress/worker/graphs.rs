//! Steps with captures and the graphs they give, in a stream that only one worker uses.

use cachette::Allocation;
use cachette::hal::{self, CaptureMode, CaptureStatus, Device};
use cachette::pool::{Capture, Graph};

use crate::bytes::assert_filled;
use crate::fixture::{Fixture, Stream};

use super::Worker;

/// Memory that a graph fills, and with what.
type Filled = (Allocation, u8);

/// The captures and graphs of one worker.
#[derive(Debug)]
pub(super) struct Graphs {
    capture_stream: Stream,
    recording: Option<(Capture, Vec<Filled>)>,
    made: Vec<(Graph, Vec<Filled>)>,
}

impl Graphs {
    pub(super) fn new(fixture: &Fixture) -> Self {
        let capture_stream = fixture.allocator.create_stream();
        Self { capture_stream: capture_stream.expect("nothing fails yet"), recording: None, made: Vec::new() }
    }
}

impl Worker<'_> {
    pub(super) fn capture_or_launch(&mut self) {
        if let Some((capture, filled)) = self.graphs.recording.take() {
            if self.random.once_in(3) {
                self.end_capture(capture, filled);
            } else {
                let filled = self.record(filled);
                self.graphs.recording = Some((capture, filled));
            }
        } else if self.graphs.made.len() > 2 {
            drop(self.graphs.made.remove(0));
        } else if self.random.once_in(2) {
            self.launch();
        } else {
            let pool = self.fixture.allocator.create_capture_pool();
            let begun = pool.begin_capture(&self.graphs.capture_stream, CaptureMode::Relaxed);
            if let Some(capture) = self.fixture.done(begun) {
                self.graphs.recording = Some((capture, Vec::new()));
            } else {
                // The call that ends what was begun may have failed too.
                self.end_active_capture();
            }
        }
    }

    /// Fills more memory in the capture. Half of it is freed there, and stays the graph's all the same.
    fn record(&mut self, mut filled: Vec<Filled>) -> Vec<Filled> {
        let (fixture, stream) = (self.fixture, self.stream());
        let capture_stream = &self.graphs.capture_stream;
        let bytes = self.random.bytes() as u64;
        if let Some(memory) = fixture.done(fixture.allocator.allocate(bytes, capture_stream)) {
            let byte = fixture.byte();
            if self.random.once_in(4) {
                memory.record_stream(stream);
            }
            let queued = fixture.fill(memory.address(), byte, memory.requested(), capture_stream);
            if queued.is_some() && self.random.once_in(2) {
                filled.push((memory, byte));
            }
        }
        filled
    }

    fn end_capture(&mut self, capture: Capture, filled: Vec<Filled>) {
        if self.random.once_in(6) {
            drop(capture);
        } else if let Some(graph) = self.fixture.done(capture.end()) {
            self.graphs.made.push((graph, filled));
        }
        self.end_active_capture();
    }

    pub(super) fn is_recording(&self) -> bool {
        self.graphs.recording.is_some()
    }

    /// Ends a capture that is still active because the call that ends it failed. A driver that keeps the contract would
    /// have ended it.
    pub(super) fn end_active_capture(&self) {
        let host = &self.fixture.host;
        let capture = host.capture().expect("the host device captures");
        let capture_stream = self.graphs.capture_stream.handle();
        loop {
            // SAFETY: 1. the stream is live.
            let status = unsafe { capture.capture_status(capture_stream) };
            match status {
                Ok(CaptureStatus::Idle) => return,
                Ok(_) => {}
                Err(error) => assert!(self.fixture.allows_failure(error.kind()), "{error}"),
            }
            // SAFETY: 1. the stream is live.
            if let Ok(graph) = unsafe { capture.end_capture(capture_stream) } {
                let again = || hal::Graph::from_raw(graph.raw());
                // SAFETY: 1. the graph was made just now, and lives as long as the call fails.
                while unsafe { capture.destroy_graph(again()) }.is_err() {}
            }
        }
    }

    /// Launches a graph, and looks at what it filled.
    fn launch(&mut self) {
        let fixture = self.fixture;
        let Some(at) = self.random.place(&self.graphs.made) else {
            return;
        };
        let (graph, filled) = &self.graphs.made[at];
        let capture_stream = &self.graphs.capture_stream;
        for (memory, _) in filled {
            let _ = fixture.fill(memory.address(), 0, memory.requested(), capture_stream);
        }
        // SAFETY: 1. it names memory of its pool alone. 2. it is the only graph of its pool. 3. the stream is the
        // allocator's.
        if fixture.done(unsafe { graph.launch(capture_stream) }).is_none() {
            return;
        }
        for (memory, byte) in filled {
            if let Some(read) = fixture.read(memory.address(), memory.requested(), capture_stream) {
                assert_filled(&read, *byte, "memory that a graph filled");
            }
        }
    }

    pub(super) fn end_graphs(&mut self) {
        if let Some((capture, filled)) = self.graphs.recording.take() {
            self.end_capture(capture, filled);
        }
        for _ in 0..self.graphs.made.len() {
            self.launch();
        }
        self.fixture.settle(&self.graphs.capture_stream);
        self.graphs.made.clear();
    }
}

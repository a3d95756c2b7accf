//! The sanitizer for Python: PyTorch's part reports to it, and so does the shared allocator.

use std::cell::Cell;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, MutexGuard, Once, PoisonError, RwLock};

use cachette::history::{Frame, RawStack, StackSource};
use cachette::snapshot::{BlockState, SnapshotOptions};
use cachette::{TraceAction, TraceEvent};
use cachette_hal::{Guarded, Use};
use cachette_sanitizer::{
    AllocatorWaits, EventId, GraphUses, Language, Marks, Options, Sanitizer, Site, StreamId, Text,
};
use pyo3::prelude::*;

use crate::per_process::PerProcess;
use crate::sequence::AtMost;
use crate::stacks::PythonStacks;

/// The sanitizer that the shared allocators report to.
static ACTIVE: PerProcess<RwLock<Option<Arc<Shared>>>> = PerProcess::new();

thread_local! {
    /// The place of the operator that runs on this thread; zero for none.
    static SITE: Cell<u32> = const { Cell::new(0) };
}

/// A sanitizer of memory that is reused too early.
///
/// Streams are numbers: the driver's handle, or [`default_stream`] for the default stream of a device.
#[pyclass(name = "Sanitizer", module = "cachette_gpu._native", frozen)]
pub(crate) struct PySanitizer(Arc<Shared>);

/// Addresses of the tensors of an operator.
type Addresses = AtMost<{ 1 << 20 }, u64>;

struct Shared {
    state: PerProcess<Guarded<State>>,
    stacks: Arc<PythonStacks>,
}

struct State {
    sanitizer: Sanitizer,
    marks: Marks,
    /// Captured graphs, by number.
    graphs: HashMap<u64, GraphUses>,
    next_graph: u64,
    /// Requests outside of operators.
    unseen_requests: u64,
}

#[pymethods]
impl PySanitizer {
    /// `libraries` are parts of file names: lines of such files are not the program's.
    #[new]
    fn new(reads_before_writes: bool, libraries: AtMost<1024, String>) -> Self {
        let mut options = Options::default();
        options.waits = AllocatorWaits::Promised;
        options.language = Language::Python;
        options.reads_before_writes = reads_before_writes;
        options.libraries = libraries.0;
        let shared = Shared { state: PerProcess::new(), stacks: PythonStacks::python() };
        shared.state().sanitizer = Sanitizer::new(options);
        Self(Arc::new(shared))
    }

    /// Receives the requests and frees of the shared allocators from now on, in place of any other.
    fn start(&self, py: Python<'_>) {
        static ONCE: Once = Once::new();
        *active_mut() = Some(Arc::clone(&self.0));
        py.detach(|| {
            ONCE.call_once(|| {
                cachette_process::track(|device, event| {
                    if let Some(shared) = active() {
                        shared.event(device, event);
                    }
                });
                cachette_torch::on_record_stream(|device, address, stream| {
                    if let Some(shared) = active() {
                        let stream = stream_of(device, stream.raw() as u64);
                        shared.state().sanitizer.record_stream(address, stream);
                    }
                });
            });
            self.0.adopt();
        });
    }

    /// Receives nothing more.
    fn stop(&self) {
        let mut active = active_mut();
        if active.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, &self.0)) {
            *active = None;
        }
    }

    /// The number of a text, such as the name of an operator.
    fn text(&self, text: &str) -> u32 {
        self.0.state().sanitizer.text(text).number()
    }

    /// An operator begins on this thread: what it does has the place of its caller.
    fn enter(&self) {
        SITE.set(self.0.capture().0);
    }

    /// The operator has ended.
    #[staticmethod]
    fn leave() {
        SITE.set(0);
    }

    /// Reports the reads and writes of an operator. Returns the number of findings so far, and the addresses of memory
    /// without a description.
    fn uses(&self, stream: u64, reads: Addresses, writes: Addresses, by: u32) -> (usize, Vec<u64>) {
        let site = self.0.site();
        let mut state = self.0.state();
        let mut bare = Vec::new();
        for (addresses, access) in [(reads.0, Use::Read), (writes.0, Use::Write)] {
            for address in addresses {
                if state.sanitizer.uses(StreamId(stream), address, access, Text::of(by), site) {
                    bare.push(address);
                }
            }
        }
        state.mark();
        (state.sanitizer.count(), bare)
    }

    /// Describes live memory, such as by the shape of its tensor.
    fn describe(&self, address: u64, text: &str) {
        self.0.state().sanitizer.describe(address, text);
    }

    /// Begins a life of memory; the shared allocators report theirs.
    fn allocate(&self, stream: u64, address: u64, bytes: u64) {
        let site = self.0.site();
        self.0.state().sanitizer.allocate(StreamId(stream), address, bytes, site);
    }

    /// Ends a life of memory.
    fn free(&self, address: u64) {
        let site = self.0.site();
        self.0.state().sanitizer.free(address, site);
    }

    /// Ends a life of memory that is not reused before all its uses have ended.
    fn forget(&self, address: u64) {
        self.0.state().sanitizer.forget(address);
    }

    /// Records that a stream uses the memory.
    fn record_stream(&self, address: u64, stream: u64) {
        self.0.state().sanitizer.record_stream(address, StreamId(stream));
    }

    /// Reports an access of the host to pinned memory. Returns the number of findings so far.
    fn host_uses(&self, address: u64, write: bool) -> usize {
        let site = self.0.site();
        let mut state = self.0.state();
        state.sanitizer.host_uses(address, if write { Use::Write } else { Use::Read }, site);
        state.mark();
        state.sanitizer.count()
    }

    /// Excludes a stream that was made outside.
    fn ignore_stream(&self, stream: u64) {
        self.0.state().sanitizer.ignore_stream(StreamId(stream));
    }

    /// An event was recorded in a stream.
    fn record(&self, event: u64, stream: u64) {
        self.0.state().sanitizer.record(EventId(event), StreamId(stream));
    }

    /// A stream waits for an event.
    fn stream_wait(&self, stream: u64, event: u64) {
        self.0.state().sanitizer.stream_wait(StreamId(stream), EventId(event));
    }

    /// The host has waited for an event, or found it done.
    fn host_wait(&self, event: u64) {
        self.0.state().sanitizer.host_wait(EventId(event));
    }

    /// The host has waited for a stream.
    fn synchronize(&self, stream: u64) {
        self.0.state().sanitizer.synchronize(StreamId(stream));
    }

    /// The host has waited for all streams.
    fn synchronize_device(&self) {
        self.0.state().sanitizer.synchronize_device();
    }

    /// An event was destroyed.
    fn destroy_event(&self, event: u64) {
        self.0.state().sanitizer.destroy_event(EventId(event));
    }

    /// A capture begins on a stream.
    fn begin_capture(&self, stream: u64) {
        self.0.state().sanitizer.begin_capture(StreamId(stream));
    }

    /// A capture ends. Returns the number of its graph.
    fn end_capture(&self, stream: u64) -> u64 {
        let mut state = self.0.state();
        let uses = state.sanitizer.end_capture(StreamId(stream));
        state.next_graph += 1;
        let number = state.next_graph;
        state.graphs.insert(number, uses);
        number
    }

    /// A graph is launched in a stream.
    fn launch(&self, graph: u64, stream: u64) {
        let mut state = self.0.state();
        let State { sanitizer, graphs, .. } = &mut *state;
        if let Some(uses) = graphs.get(&graph) {
            sanitizer.launch(uses, StreamId(stream));
        }
        state.mark();
    }

    /// A graph was destroyed.
    fn destroy_graph(&self, graph: u64) {
        self.0.state().graphs.remove(&graph);
    }

    /// The number of distinct findings.
    fn count(&self) -> usize {
        self.0.state().sanitizer.count()
    }

    /// The findings after the first `known`, as texts.
    fn texts(&self, py: Python<'_>, known: usize) -> Vec<String> {
        let resolve = |site: Site| self.0.resolve(site);
        let found = py.detach(|| self.0.state().sanitizer.findings_since(known, &resolve));
        found.iter().map(ToString::to_string).collect()
    }

    /// All findings as JSON.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        let resolve = |site: Site| self.0.resolve(site);
        let found = py.detach(|| self.0.state().sanitizer.findings(&resolve));
        serde_json::to_string_pretty(&found).map_err(|why| crate::error::error(why.to_string()))
    }

    /// Counts of what was not followed, by name.
    fn unfollowed(&self) -> Vec<(&'static str, u64)> {
        let state = self.0.state();
        let counts = state.sanitizer.unfollowed();
        vec![
            ("uses of memory that Cachette did not allocate", counts.unknown_memory),
            ("uses on streams that were made outside of PyTorch", counts.foreign_streams),
            ("uses inside captured graphs, whose inner order is not followed", counts.captured),
            ("requests outside of operators, such as of C++ code", state.unseen_requests),
            ("distinct findings after the first thousand", counts.findings),
        ]
    }
}

/// The number of the default stream of a device.
#[pyfunction]
pub(crate) fn default_stream(device: u32) -> u64 {
    stream_of(device, 0).0
}

/// A stream by its handle, which is zero for the default stream of every device.
fn stream_of(device: u32, handle: u64) -> StreamId {
    // Handles are addresses of the host, which have fewer than 56 bits.
    StreamId(if handle == 0 { u64::from(device) << 56 } else { handle })
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each report is complete in itself, so a panic leaves the state valid.
        self.state.get().lock()
    }

    /// The place of this thread's operator, or of the caller. The lock is not held: a capture may wait for the GIL.
    fn site(&self) -> Site {
        match SITE.get() {
            0 => self.capture(),
            site => Site(site),
        }
    }

    fn capture(&self) -> Site {
        self.stacks.capture().map_or(Site(0), |stack| Site(stack.0.get()))
    }

    fn resolve(&self, site: Site) -> Vec<Frame> {
        let stack = NonZeroU32::new(site.0).map(RawStack);
        let resolved = stack.and_then(|stack| self.stacks.resolve(&[stack]).pop());
        let Some(stack) = resolved else { return Vec::new() };
        // In a backward pass the lines of the forward pass, which PyTorch keeps in anomaly mode, outermost first.
        stack.frames.into_iter().chain(stack.forward.into_iter().rev()).collect()
    }

    /// Takes over the memory that is in use already. The place of its allocation is not known.
    fn adopt(&self) {
        let snapshot = cachette_process::snapshot(None, SnapshotOptions::new().traces(false));
        let mut state = self.state();
        for segment in &snapshot.segments {
            let stream = stream_of(segment.device, segment.stream);
            for block in segment.blocks.iter().filter(|block| block.state == BlockState::Allocated) {
                if !state.sanitizer.is_live(block.address) {
                    state.sanitizer.allocate(stream, block.address, block.bytes, Site(0));
                }
            }
        }
    }

    fn event(&self, device: u32, event: &TraceEvent) {
        let (stream, address, bytes) = (stream_of(device, event.stream.raw() as u64), event.address, event.bytes);
        let in_operator = SITE.get() != 0;
        let site = match event.action {
            TraceAction::SegmentMap | TraceAction::FreeCompleted | TraceAction::Snapshot | TraceAction::Annotate => {
                Site(0)
            }
            _ => self.site(),
        };
        let mut state = self.state();
        match event.action {
            TraceAction::Alloc => {
                state.unseen_requests += u64::from(!in_operator);
                state.sanitizer.allocate(stream, address, bytes, site);
            }
            TraceAction::FreeRequested => state.sanitizer.free(address, site),
            TraceAction::SegmentUnmap | TraceAction::SegmentFree => {
                state.sanitizer.unmap(address, bytes, Some(stream), site);
            }
            TraceAction::SegmentMap => state.sanitizer.map(address, bytes),
            _ => {}
        }
        state.mark();
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            sanitizer: Sanitizer::new(Options::default()),
            marks: Marks::default(),
            graphs: HashMap::new(),
            next_graph: 0,
            unseen_requests: 0,
        }
    }
}

impl State {
    /// Marks new findings in histories.
    fn mark(&mut self) {
        self.marks.add(&self.sanitizer);
    }
}

fn active() -> Option<Arc<Shared>> {
    ACTIVE.get().read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn active_mut() -> std::sync::RwLockWriteGuard<'static, Option<Arc<Shared>>> {
    ACTIVE.get().write().unwrap_or_else(PoisonError::into_inner)
}

//! What the C interface leaves out of its handles: sizes and owners.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette_hal::{AnyDevice, Backing, Device, Graph};

use crate::graph_memory::GraphMemory;
use crate::prelude::*;
use crate::user_objects::UserObject;

const FIRST_HANDLE: usize = 0x1000;

/// Everything that was given out and has a size or an owner.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Device memory by its start.
    pub(crate) ranges: Locked<BTreeMap<u64, Range>>,
    /// Physical memory by its handle.
    pub(crate) backings: Locked<BTreeMap<u64, Physical>>,
    /// Graphs and what was made from them, by handle.
    pub(crate) graphs: Locked<BTreeMap<usize, Arc<Recording>>>,
    /// For every captured stream, by handle, the frontier that was told last: callers read it in place.
    frontiers: Locked<BTreeMap<usize, Vec<usize>>>,
    /// Handles of the streams whose capture is being ended.
    pub(crate) ending: Locked<BTreeSet<usize>>,
    /// Handles of the graphs that are being launched.
    pub(crate) launching: Locked<BTreeSet<usize>>,
    /// Objects that no graph has yet, by handle.
    pub(crate) objects: Locked<BTreeMap<usize, UserObject>>,
    /// Memory of the captures under way, by their numbers.
    pub(crate) recorded: Locked<BTreeMap<u64, Vec<Arc<GraphMemory>>>>,
    /// The captures under way, by the handles of the streams that began them.
    pub(crate) captures: Locked<BTreeMap<usize, u64>>,
    /// Contexts that the program made, by handle, with the indices of their devices.
    pub(crate) contexts: Locked<BTreeMap<usize, usize>>,
    /// Streams of such contexts.
    pub(crate) context_of: Locked<BTreeMap<usize, usize>>,
    /// Priorities of streams by handle, where they were asked for.
    pub(crate) priorities: Locked<BTreeMap<usize, c_int>>,
    /// Tokens that this process made.
    pub(crate) tokens: Locked<BTreeSet<[u8; 64]>>,
    /// Pairs of devices, the first of which reaches the second.
    pub(crate) reached: Locked<BTreeSet<(usize, usize)>>,
    handles: AtomicUsize,
}

/// Device memory at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) bytes: u64,
    /// Handle of the physical memory, where it is a mapping.
    pub(crate) backing: Option<u64>,
    /// Index of its device.
    pub(crate) unit: usize,
}

/// Physical memory behind a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub(crate) bytes: u64,
    /// How often the handle must be released.
    pub(crate) holders: u32,
    /// Whether the device beneath still knows the handle; a mapping may outlive that.
    pub(crate) is_live: bool,
    /// Index of its device.
    pub(crate) unit: usize,
}

impl Physical {
    /// The contract's handle, for a call that borrows it or takes it for good.
    pub(crate) fn backing(self, handle: usize) -> Backing {
        Backing::from_raw(handle, self.bytes)
    }
}

/// What a capture recorded; a graph and all that was made from it share it.
pub(crate) struct Recording {
    device: AnyDevice,
    graph: Option<Graph>,
    pub(crate) memory: Vec<Arc<GraphMemory>>,
    /// What is destroyed after it.
    pub(crate) objects: Locked<Vec<UserObject>>,
}

impl Recording {
    pub(crate) const fn new(device: AnyDevice, graph: Graph, memory: Vec<Arc<GraphMemory>>) -> Self {
        Self { device, graph: Some(graph), memory, objects: Locked::new(Vec::new()) }
    }

    /// The contract's graph.
    pub(crate) const fn graph(&self) -> Option<&Graph> {
        self.graph.as_ref()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let (Some(graph), Ok(capture)) = (self.graph.take(), self.device.capture()) {
            // A device that refuses has lost the graph already.
            // SAFETY: 1. the graph was made by this device, and is destroyed here alone.
            let _ = unsafe { capture.destroy_graph(graph) };
        }
    }
}

impl Ledger {
    /// The memory that holds an address, with its start.
    pub(crate) fn range_of(&self, at: u64) -> Option<(u64, Range)> {
        let ranges = self.ranges.lock();
        let (start, range) = ranges.range(..=at).next_back()?;
        (at - start < range.bytes).then_some((*start, *range))
    }

    /// Takes the memory at an address out, gives it back by `act`, and puts it in again if that fails.
    ///
    /// It is taken out first, for others may be given the same address before the call returns.
    pub(crate) fn give_back(&self, at: u64, act: impl FnOnce(Range) -> Answer) -> Answer {
        let range = self.ranges.lock().remove(&at).ok_or(INVALID_VALUE)?;
        act(range).inspect_err(|_| {
            self.ranges.lock().insert(at, range);
        })
    }

    /// Gives a recording a handle.
    pub(crate) fn enter_graph(&self, recording: Arc<Recording>) -> usize {
        let handle = self.next_handle();
        self.graphs.lock().insert(handle, recording);
        handle
    }

    /// Ends the capture that a stream began; its memory.
    pub(crate) fn end_capture(&self, stream: usize) -> Vec<Arc<GraphMemory>> {
        let capture = self.captures.lock().remove(&stream);
        capture.and_then(|capture| self.recorded.lock().remove(&capture)).unwrap_or_default()
    }

    /// A handle that nothing has.
    pub(crate) fn next_handle(&self) -> usize {
        // Relaxed: only that no two calls get the same matters.
        FIRST_HANDLE + self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a stream's frontier until it is asked for again; where it lies.
    pub(crate) fn keep_frontier(&self, stream: usize, nodes: Vec<usize>) -> *const usize {
        let mut frontiers = self.frontiers.lock();
        if nodes.is_empty() {
            frontiers.remove(&stream);
            return ptr::null();
        }
        let kept = frontiers.entry(stream).or_default();
        *kept = nodes;
        kept.as_ptr()
    }
}

/// Data behind a lock, consistent even after a panic, because no holder panics halfway.
#[derive(Default)]
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) const fn new(data: T) -> Self {
        Self(Mutex::new(data))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

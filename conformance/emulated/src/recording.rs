//! What captures record: work, memory, and objects of the program.
//!
//! A graph and all that was made from it share a recording, so none of these goes before the last of them. Nothing of a
//! graph's memory is reused. What a graph allocates and does not free lives after a launch until the program frees it,
//! and must be freed before the next launch.

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cachette_hal::{AnyDevice, CaptureNode, Device, DevicePtr, Graph, Guarded, Result};

use crate::capture::relaxed;
use crate::status::{Answer, INVALID_VALUE, refuse_if};

/// What a capture has recorded.
#[derive(Debug)]
pub struct Recording {
    device: AnyDevice,
    /// `None` only in its destructor.
    graph: Option<Graph>,
    memory: Vec<Arc<GraphMemory>>,
    /// What is destroyed after it.
    objects: Guarded<Vec<UserObject>>,
}

impl Recording {
    /// The graph of a capture of `device` that has ended, with its memory.
    #[must_use]
    pub fn new(device: &AnyDevice, graph: Graph, memory: Vec<Arc<GraphMemory>>) -> Arc<Self> {
        let (device, objects) = (Arc::clone(device), Guarded::default());
        Arc::new(Self { device, graph: Some(graph), memory, objects })
    }

    /// The contract's graph.
    pub fn graph(&self) -> Answer<&Graph> {
        self.graph.as_ref().ok_or(INVALID_VALUE)
    }

    /// Allocates what a launch allocates. What the last one left must be freed before.
    pub fn allocate(&self) -> Answer {
        let unfreed = || self.memory.iter().filter(|memory| !memory.is_freed.load(Relaxed));
        refuse_if(unfreed().any(|memory| memory.is_live.load(Relaxed)), INVALID_VALUE)?;
        unfreed().for_each(|memory| memory.is_live.store(true, Relaxed));
        Ok(())
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

/// Memory of one allocation in a graph. Relaxed: a program orders its calls with one graph.
#[derive(Debug)]
pub struct GraphMemory {
    device: AnyDevice,
    at: DevicePtr,
    /// Whether the same graph frees it.
    is_freed: AtomicBool,
    /// Whether a launch has allocated it, and the program has not freed it.
    is_live: AtomicBool,
}

impl GraphMemory {
    /// Allocates it beneath.
    pub fn allocate(device: &AnyDevice, bytes: u64) -> Result<Self> {
        let at = relaxed(device, |device| device.allocate(bytes))?;
        let (is_freed, is_live) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { device: Arc::clone(device), at, is_freed, is_live })
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        // A device that refuses has lost the memory already.
        // SAFETY: 1. and 2. no graph has it any more.
        let _ = relaxed(&self.device, |device| unsafe { device.free(self.at) });
    }
}

/// The destructor of an object.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// An object of the program; a drop destroys it.
#[derive(Debug)]
pub struct UserObject {
    data: usize,
    destroy: Destructor,
}

impl UserObject {
    /// Takes an object with one reference. Without a wait for the destructor is the only flag, which must be set.
    ///
    /// # Safety
    ///
    /// The function takes the object, from any thread, once.
    pub unsafe fn new(data: *mut c_void, destroy: Option<Destructor>, count: c_uint, flags: c_uint) -> Answer<Self> {
        refuse_if(count != 1 || flags != 1, INVALID_VALUE)?;
        Ok(Self { data: data.expose_provenance(), destroy: destroy.ok_or(INVALID_VALUE)? })
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        // SAFETY: the promise of the caller of `new`.
        unsafe { (self.destroy)(ptr::with_exposed_provenance_mut(self.data)) };
    }
}

/// The captures under way, and what they have recorded.
#[derive(Debug, Default)]
pub struct Recordings {
    /// The captures under way, by the handles of the streams that began them.
    captures: HashMap<usize, u64>,
    /// Memory of the captures under way, by their numbers.
    memory: HashMap<u64, Vec<Arc<GraphMemory>>>,
    /// Graphs by handle.
    pub graphs: HashMap<usize, Arc<Recording>>,
    /// What was made from graphs to be launched, by handle.
    pub executables: HashMap<usize, Arc<Recording>>,
    /// Objects that no graph has yet, by handle.
    pub objects: HashMap<usize, UserObject>,
    /// For every captured stream the frontier that was told last: callers read it in place.
    frontiers: HashMap<usize, Vec<usize>>,
}

impl Recordings {
    /// Whether no graph can have memory.
    #[must_use]
    pub fn are_empty(&self) -> bool {
        self.memory.is_empty() && self.graphs.is_empty() && self.executables.is_empty()
    }

    /// Notes the capture that a stream has begun.
    pub fn begin(&mut self, stream: usize, capture: u64) {
        self.captures.insert(stream, capture);
    }

    /// Ends the capture that a stream began; its memory.
    pub fn end(&mut self, stream: usize) -> Vec<Arc<GraphMemory>> {
        let capture = self.captures.remove(&stream);
        capture.and_then(|capture| self.memory.remove(&capture)).unwrap_or_default()
    }

    /// Gives memory to a capture; its address.
    pub fn allocated(&mut self, capture: u64, memory: GraphMemory) -> u64 {
        let at = memory.at.address();
        self.memory.entry(capture).or_default().push(Arc::new(memory));
        at
    }

    /// Frees in a capture. It must be memory of a graph.
    pub fn free_in_capture(&self, at: DevicePtr, capture: u64) -> Answer {
        let own = self.memory.get(&capture).and_then(|own| own.iter().find(|memory| memory.at == at));
        match own {
            Some(memory) => refuse_if(memory.is_freed.swap(true, Relaxed), INVALID_VALUE),
            None => refuse_if(self.find(at).is_none(), INVALID_VALUE),
        }
    }

    /// Frees memory that a launch has allocated. Returns whether it is a graph's.
    pub fn free(&self, at: DevicePtr) -> Answer<bool> {
        let Some(memory) = self.find(at) else { return Ok(false) };
        refuse_if(!memory.is_live.swap(false, Relaxed), INVALID_VALUE)?;
        Ok(true)
    }

    fn find(&self, at: DevicePtr) -> Option<&Arc<GraphMemory>> {
        let recordings = self.graphs.values().chain(self.executables.values());
        recordings.flat_map(|recording| &recording.memory).find(|memory| memory.at == at)
    }

    /// The recording of a graph.
    pub fn graph(&self, handle: usize) -> Answer<Arc<Recording>> {
        self.graphs.get(&handle).cloned().ok_or(INVALID_VALUE)
    }

    /// Gives an object to a graph, with the caller's reference, which is the only flag.
    pub fn retain(&mut self, graph: usize, object: usize, count: c_uint, flags: c_uint) -> Answer {
        refuse_if(count != 1 || flags != 1, INVALID_VALUE)?;
        let recording = self.graph(graph)?;
        let object = self.objects.remove(&object).ok_or(INVALID_VALUE)?;
        recording.objects.lock().push(object);
        Ok(())
    }

    /// Keeps a stream's frontier until it is asked for again; where it lies.
    pub fn keep_frontier(&mut self, stream: usize, nodes: &[CaptureNode]) -> *const usize {
        if nodes.is_empty() {
            self.frontiers.remove(&stream);
            return ptr::null();
        }
        let kept = self.frontiers.entry(stream).or_default();
        *kept = nodes.iter().map(|node| node.raw()).collect();
        kept.as_ptr()
    }
}

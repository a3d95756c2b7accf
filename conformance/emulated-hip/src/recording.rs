//! What a capture has recorded: work, memory, and objects of the program.
//!
//! A graph and all that was made from it share a recording, so none of these goes before the last of them.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use cachette_hal::{AnyDevice, CaptureStatus, Device, DevicePtr, Graph};

use crate::prelude::*;

/// What a capture has recorded.
#[derive(Debug)]
pub(crate) struct Recording {
    device: AnyDevice,
    graph: Option<Graph>,
    memory: Vec<Arc<GraphMemory>>,
    objects: Mutex<Vec<UserObject>>,
}

impl Recording {
    pub(crate) const fn new(device: AnyDevice, graph: Graph, memory: Vec<Arc<GraphMemory>>) -> Self {
        Self { device, graph: Some(graph), memory, objects: Mutex::new(Vec::new()) }
    }

    pub(crate) const fn graph(&self) -> Option<&Graph> {
        self.graph.as_ref()
    }

    /// Allocates what a launch allocates. What the last one left must be freed before.
    pub(crate) fn allocate(&self) -> Answer {
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

/// Memory that a graph allocates. Relaxed: a program orders its calls with one graph.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    device: AnyDevice,
    at: DevicePtr,
    /// Whether the same graph frees it.
    is_freed: AtomicBool,
    /// Whether a launch has allocated it, and the program has not freed it.
    is_live: AtomicBool,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        // A device that refuses has lost the memory already.
        // SAFETY: 1. and 2. no graph has it any more.
        let _ = relaxed(&self.device, |device| unsafe { device.free(self.at) });
    }
}

pub(crate) fn capture_of(machine: &Machine, stream: StreamHandle) -> Option<u64> {
    let (_, device, beneath) = machine.any_stream(stream).ok()?;
    // SAFETY: 1. the table has it.
    match unsafe { device.capture().ok()?.capture_status(beneath) } {
        Ok(CaptureStatus::Active(id)) => Some(id.0.get()),
        _ => None,
    }
}

pub(crate) fn allocate(machine: &Machine, device: &AnyDevice, bytes: Bytes, capture: u64) -> Answer<Address> {
    let mut at = None;
    relaxed(device, |device| {
        at = Some(device.allocate(bytes)?);
        Ok(())
    })?;
    let at = at.ok_or(UNKNOWN)?;
    let (is_freed, is_live) = (AtomicBool::new(false), AtomicBool::new(false));
    let memory = GraphMemory { device: Arc::clone(device), at, is_freed, is_live };
    machine.state().recorded.entry(capture).or_default().push(Arc::new(memory));
    Ok(at.address())
}

/// Frees in a capture. It must be memory of a graph.
pub(crate) fn free_in_capture(machine: &Machine, at: DevicePtr, capture: u64) -> Answer {
    let state = machine.state();
    let own = state.recorded.get(&capture).and_then(|own| own.iter().find(|memory| memory.at == at));
    match own {
        Some(memory) => refuse_if(memory.is_freed.swap(true, Relaxed), INVALID_VALUE),
        None => refuse_if(find(&state, at).is_none(), INVALID_VALUE),
    }
}

/// Frees memory that a launch has allocated. Returns whether it is a graph's.
pub(crate) fn free(machine: &Machine, at: DevicePtr) -> Answer<bool> {
    let state = machine.state();
    let Some(memory) = find(&state, at) else { return Ok(false) };
    refuse_if(!memory.is_live.swap(false, Relaxed), INVALID_VALUE)?;
    Ok(true)
}

fn find(state: &State, at: DevicePtr) -> Option<&Arc<GraphMemory>> {
    let recordings = state.graphs.values().chain(state.execs.values());
    recordings.flat_map(|recording| &recording.memory).find(|memory| memory.at == at)
}

type Destructor = unsafe extern "C" fn(*mut c_void);

/// An object of the program; a drop destroys it.
#[derive(Debug)]
pub(crate) struct UserObject {
    data: usize,
    destroy: Destructor,
}

impl Drop for UserObject {
    fn drop(&mut self) {
        // SAFETY: the caller has promised that the function takes the object, from any thread, once.
        unsafe { (self.destroy)(ptr::with_exposed_provenance_mut(self.data)) };
    }
}

abi! {
    /// Takes an object with one reference. Without a wait for the destructor is the only flag, which must be set.
    fn hipUserObjectCreate(
        machine;
        object: *mut usize,
        data: *mut c_void,
        destroy: Option<Destructor>,
        count: c_uint,
        flags: c_uint,
    ) => object {
        refuse_if(count != 1 || flags != 1, INVALID_VALUE)?;
        let made = UserObject { data: data.expose_provenance(), destroy: destroy.ok_or(INVALID_VALUE)? };
        let mut state = machine.state();
        let handle = state.handle();
        state.objects.insert(handle, made);
        Ok(handle)
    }

    /// Gives an object to a graph, with the caller's reference, which is the only flag.
    fn hipGraphRetainUserObject(machine; graph: GraphHandle, object: usize, count: c_uint, flags: c_uint) {
        refuse_if(count != 1 || flags != 1, INVALID_VALUE)?;
        let mut state = machine.state();
        let recording = state.graphs.get(&graph).cloned().ok_or(INVALID_VALUE)?;
        let object = state.objects.remove(&object).ok_or(INVALID_VALUE)?;
        recording.objects.lock().unwrap_or_else(PoisonError::into_inner).push(object);
        Ok(())
    }

    /// Copies a graph. The copy shares its memory and objects.
    fn hipGraphClone(machine; copy: *mut GraphHandle, graph: GraphHandle) => copy {
        let mut state = machine.state();
        let recording = state.graphs.get(&graph).cloned().ok_or(INVALID_VALUE)?;
        let handle = state.handle();
        state.graphs.insert(handle, recording);
        Ok(handle)
    }
}

//! Memory that captured graphs allocate.
//!
//! A graph has its memory until it and all that was made from it are gone, so nothing is reused. What a graph allocates
//! and does not free lives after a launch until the program frees it, and must be freed before the next launch.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{AnyDevice, CaptureStatus, Device};

use crate::prelude::*;

/// Memory of one allocation in a graph. Relaxed: a program orders its calls with one graph.
pub(crate) struct GraphMemory {
    device: AnyDevice,
    at: u64,
    /// Whether the same graph frees it.
    is_freed: AtomicBool,
    /// Whether a launch has allocated it, and the program has not freed it.
    is_live: AtomicBool,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let _relaxed = RelaxedCapture::enter(&self.device);
        if let Ok(at) = device_ptr(self.at) {
            // A device that refuses has lost the memory already.
            // SAFETY: 1. and 2. no graph has it any more.
            let _ = unsafe { self.device.free(at) };
        }
    }
}

pub(crate) fn capture_of(unit: &Unit, stream: *mut c_void) -> Option<u64> {
    let capture = unit.device.capture().ok()?;
    // SAFETY: 1. is the caller's promise.
    match unsafe { capture.capture_status(named_stream(stream)) } {
        Ok(CaptureStatus::Active(id)) => Some(id.0.get()),
        _ => None,
    }
}

pub(crate) fn allocate(unit: &Unit, bytes: u64, capture: u64) -> Answer<u64> {
    let _relaxed = RelaxedCapture::enter(&unit.device).map_err(told)?;
    let at = unit.device.allocate(bytes).map_err(told)?.address();
    let device = Arc::clone(&unit.device);
    let memory = GraphMemory { device, at, is_freed: AtomicBool::new(false), is_live: AtomicBool::new(false) };
    driver()?.ledger.recorded.lock().entry(capture).or_default().push(Arc::new(memory));
    Ok(at)
}

/// Frees in a capture. It must be memory of a graph.
pub(crate) fn free_in_capture(at: u64, capture: u64) -> Answer {
    let recorded = driver()?.ledger.recorded.lock();
    let own = recorded.get(&capture).and_then(|own| own.iter().find(|memory| memory.at == at));
    match own {
        Some(memory) => refuse_if(memory.is_freed.swap(true, Relaxed), INVALID_VALUE),
        None => refuse_if(find(at)?.is_none(), INVALID_VALUE),
    }
}

/// Frees memory that a launch has allocated. Returns whether it is a graph's.
pub(crate) fn free(at: u64) -> Answer<bool> {
    let Some(memory) = find(at)? else { return Ok(false) };
    refuse_if(!memory.is_live.swap(false, Relaxed), INVALID_VALUE)?;
    Ok(true)
}

fn find(at: u64) -> Answer<Option<Arc<GraphMemory>>> {
    let graphs = driver()?.ledger.graphs.lock();
    Ok(graphs.values().flat_map(|graph| &graph.memory).find(|memory| memory.at == at).cloned())
}

/// Allocates what a launch allocates.
pub(crate) fn launch(memory: &[Arc<GraphMemory>]) -> Answer {
    let unfreed = || memory.iter().filter(|memory| !memory.is_freed.load(Relaxed));
    refuse_if(unfreed().any(|memory| memory.is_live.load(Relaxed)), INVALID_VALUE)?;
    unfreed().for_each(|memory| memory.is_live.store(true, Relaxed));
    Ok(())
}

//! A captured graph with an owner, and the guard that lets a thread call the driver during a capture.

use std::marker::PhantomData;

use super::OwnedStream;
use super::closing::closes;
use crate::{CaptureMode, Device, Graph, Guarded, Result, StreamRef};

/// A captured graph with an owner.
#[derive(Debug)]
pub struct OwnedGraph<D: Device> {
    device: D,
    /// `None` only after [`close`](Self::close).
    graph: Option<Graph>,
    /// Held during a launch.
    launching: Guarded<()>,
}

impl<D: Device> OwnedGraph<D> {
    /// Ends the capture that was begun on `stream` and owns its graph.
    ///
    /// # Safety
    ///
    /// Promise 1 for `stream`. Promises 3 and 4 for all memory that the graph uses, until its last launch has
    /// finished.
    pub unsafe fn end_capture(device: D, stream: StreamRef) -> Result<Self> {
        let capture = device.capture()?;
        // SAFETY: 1. the caller promises it for the stream.
        let graph = unsafe { capture.end_capture(stream) }?;
        Ok(Self { device, graph: Some(graph), launching: Guarded::new(()) })
    }

    /// Queues all work of the graph.
    ///
    /// # Panics
    ///
    /// Never: only `close` and the destructor empty an owner.
    pub fn launch<E: Device>(&self, stream: &OwnedStream<E>) -> Result<()> {
        let graph = self.graph.as_ref().expect("the owner holds its graph until it is dropped");
        let capture = self.device.capture()?;
        let _alone = self.launching.lock();
        // SAFETY: 1. both owners are alive, and the lock keeps other launches out. 3 and 4. The caller of `end_capture`
        // promised them.
        unsafe { capture.launch(graph, stream.get()) }
    }

    fn destroy(&mut self) -> Result<()> {
        let Some(graph) = self.graph.take() else { return Ok(()) };
        let capture = self.device.capture()?;
        // SAFETY: 1. this device created the handle, which leaves its owner here.
        unsafe { capture.destroy_graph(graph) }
    }
}

closes! {
    /// Destroys the graph and returns the result.
    OwnedGraph<D> by destroy
}

/// A guard: while it lives, this thread may allocate during a capture.
///
/// Its drop restores the thread's previous mode. It cannot leave its thread, because the mode belongs to the thread.
#[derive(Debug)]
pub struct RelaxedCapture<D: Device> {
    device: D,
    before: CaptureMode,
    bound_to_thread: PhantomData<*const ()>,
}

impl<D: Device> RelaxedCapture<D> {
    /// Puts the calling thread into [`CaptureMode::Relaxed`].
    pub fn enter(device: D) -> Result<Self> {
        let before = device.capture()?.exchange_capture_mode(CaptureMode::Relaxed)?;
        Ok(Self { device, before, bound_to_thread: PhantomData })
    }
}

impl<D: Device> Drop for RelaxedCapture<D> {
    fn drop(&mut self) {
        if let Ok(capture) = self.device.capture() {
            // A destructor cannot return an error, and the driver accepted this mode before.
            let _ = capture.exchange_capture_mode(self.before);
        }
    }
}

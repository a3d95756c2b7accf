//! A stream on which memory is allocated.

use std::sync::Arc;

use cachette_hal::{self as hal, AnyDevice, Device, StreamRef};

use crate::heap::Heap;
use crate::stream_state::StreamState;

/// A stream of the device on which memory is allocated.
///
/// It is a handle: clones refer to the same stream. The driver's stream lives as long as the allocator and all memory
/// allocated on it, so no allocation outlives its stream.
#[derive(Debug)]
pub struct Stream<D: Device = AnyDevice> {
    pub(crate) stream_state: Arc<StreamState<D>>,
    /// The heap of this stream in the default pool.
    pub(crate) heap: Arc<Heap<D>>,
}

impl<D: Device> Stream<D> {
    /// The driver's stream, for queueing work.
    #[must_use]
    pub fn handle(&self) -> StreamRef {
        self.stream_state.handle()
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.stream_state.shared().device
    }

    /// Blocks the host until all work queued in the stream so far has finished.
    pub fn synchronize(&self) -> hal::Result<()> {
        if self.stream_state.shared().origin.is_inherited() {
            return Err(hal::Error::new(hal::ErrorKind::DeviceLost, "synchronize"));
        }
        // SAFETY: 1. the stream state keeps its stream alive.
        unsafe { self.device().synchronize(self.handle()) }
    }
}

impl<D: Device> Drop for Stream<D> {
    fn drop(&mut self) {
        // The heap holds the stream state, which holds everything else.
        self.heap.shared.origin.keep(&self.heap);
    }
}

impl<D: Device> Clone for Stream<D> {
    fn clone(&self) -> Self {
        Self { stream_state: Arc::clone(&self.stream_state), heap: Arc::clone(&self.heap) }
    }
}

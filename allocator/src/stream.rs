//! A stream on which memory is allocated.

use std::sync::Arc;

use cachette_hal::{self as hal, AnyDevice, Device, StreamRef};

use crate::heap::Heap;
use crate::stream_state::StreamState;

/// A stream of the device on which memory is allocated.
///
/// It is a handle: clones refer to the same stream. The driver's stream lives as long as the allocator and all memory
/// allocated on it, so no allocation outlives its stream. Once the last handle is dropped and no memory of the stream is
/// allocated, [`Allocator::create_stream`](crate::Allocator::create_stream) may return the same stream again.
#[derive(Debug)]
pub struct Stream<D: Device = AnyDevice> {
    pub(crate) stream_state: Arc<StreamState<D>>,
    /// The heap of this stream in the default pool.
    pub(crate) heap: Arc<Heap<D>>,
}

impl<D: Device> Stream<D> {
    /// A handle to the stream of a heap in the default pool.
    pub(crate) fn of(heap: &Arc<Heap<D>>) -> Self {
        heap.stream_state.add_handle();
        Self { stream_state: Arc::clone(&heap.stream_state), heap: Arc::clone(heap) }
    }

    /// The driver's stream, for queueing work.
    #[must_use]
    pub fn handle(&self) -> StreamRef {
        self.stream_state.handle
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.stream_state.shared.device
    }

    /// Blocks the host until all work queued in the stream so far has finished.
    pub fn synchronize(&self) -> hal::Result<()> {
        // SAFETY: 1. the stream state keeps its stream alive.
        unsafe { self.device().synchronize(self.handle()) }
    }
}

impl<D: Device> Drop for Stream<D> {
    fn drop(&mut self) {
        let shared = &self.heap.shared;
        // The heap holds the stream state, which holds everything else.
        shared.origin.keep(&self.heap);
        if !shared.origin.is_inherited() && self.stream_state.remove_handle() {
            shared.dropped_streams.lock().push_back(self.heap.number);
        }
    }
}

impl<D: Device> Clone for Stream<D> {
    fn clone(&self) -> Self {
        Self::of(&self.heap)
    }
}

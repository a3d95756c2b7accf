//! A stream on which memory is allocated.

use std::fmt;
use std::sync::Arc;

use cachette_hal::{self as hal, AnyDevice, Device, StreamRef};

use crate::error::Error;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::stream_state::StreamState;

/// A stream of the device on which memory is allocated.
///
/// It is a handle: clones refer to the same stream. The driver's stream lives as long as the allocator and all memory
/// allocated on it, so no allocation outlives its stream. Once the last handle is dropped and no memory of the stream is
/// allocated, [`Allocator::create_stream`](crate::Allocator::create_stream) may return the same stream again.
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

    /// Makes later work of this stream wait on the device for all work that is queued in `other` so far.
    ///
    /// The host does not wait. Both streams have the same allocator. If `other` is captured, this stream joins the
    /// capture, as in CUDA.
    pub fn wait(&self, other: &Self) -> Result<(), Error> {
        self.check(Arc::ptr_eq(&other.heap.shared, &self.heap.shared))?;
        Ok(Fence::order(&other.stream_state, &self.stream_state)?)
    }

    /// Records an event behind all work that is queued in the stream so far.
    pub fn record_event(&self) -> Result<Event<D>, Error> {
        self.heap.shared.origin.check()?;
        Ok(Event { fence: Arc::new(Fence::record(&self.stream_state)?) })
    }

    /// Makes later work of this stream wait on the device for the event, which has the same allocator.
    pub fn wait_event(&self, event: &Event<D>) -> Result<(), Error> {
        self.check(Arc::ptr_eq(&event.fence.stream.shared, &self.heap.shared))?;
        Ok(event.fence.hold_back(&self.stream_state)?)
    }

    /// Streams of two allocators may have two drivers, which know nothing of each other's events.
    fn check(&self, is_same_allocator: bool) -> Result<(), Error> {
        self.heap.shared.origin.check()?;
        if is_same_allocator { Ok(()) } else { Err(Error::ForeignStream) }
    }
}

/// A point in the work of a stream, from [`Stream::record_event`].
pub struct Event<D: Device = AnyDevice> {
    fence: Arc<Fence<D>>,
}

impl<D: Device> Event<D> {
    /// Returns whether all work before the event has ended.
    pub fn is_done(&self) -> hal::Result<bool> {
        Ok(self.fence.poll()?.is_done())
    }

    /// Blocks the host until all work before the event has ended.
    pub fn synchronize(&self) -> hal::Result<()> {
        self.fence.wait()
    }
}

impl<D: Device> Drop for Event<D> {
    fn drop(&mut self) {
        self.fence.stream.shared.origin.keep(&self.fence);
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

impl<D: Device> fmt::Debug for Stream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.device().info().ordinal)
            .field("handle", &self.handle())
            .finish_non_exhaustive()
    }
}

impl<D: Device> fmt::Debug for Event<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("stream", &self.fence.stream.handle).finish_non_exhaustive()
    }
}

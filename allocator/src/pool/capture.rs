//! Captures whose memory comes from a pool, and the graphs that they produce.

use std::sync::Arc;

use cachette_hal::{self as hal, AnyDevice, CaptureMode, Device, StreamRef};

use super::{Filter, Pool, PoolId, PoolOptions, PoolProblem};
use crate::allocator::Allocator;
use crate::error::Error;
use crate::stream::Stream;
use crate::sync::Mutex;

/// A capture in progress. Its pool serves the requests for all streams of the capture.
///
/// A drop before [`end`](Self::end) ends the capture and destroys its graph.
#[derive(Debug)]
pub struct Capture<D: Device = AnyDevice> {
    user: Pool<D>,
    stream: Stream<D>,
    open: bool,
}

/// A captured graph. Its memory is reserved for it until the last graph of its pool is gone.
#[derive(Debug)]
pub struct Graph<D: Device = AnyDevice> {
    /// `None` only during a drop.
    handle: Option<hal::Graph>,
    user: Pool<D>,
    /// Held during a launch: drivers do not let two threads launch one graph at once.
    launching: Mutex<()>,
}

impl<D: Device> Allocator<D> {
    /// Creates a pool for captures. Graphs that share it must not run at the same time.
    #[must_use]
    pub fn create_capture_pool(&self) -> Pool<D> {
        self.add_pool(PoolId::of_capture, &PoolOptions::new())
    }
}

impl<D: Device> Pool<D> {
    /// Begins a capture of `stream`, with memory from the pool.
    ///
    /// No other thread may allocate for `stream` meanwhile: driver calls of that request could invalidate the capture.
    pub fn begin_capture(&self, stream: &Stream<D>, mode: CaptureMode) -> Result<Capture<D>, Error> {
        if stream.handle() == StreamRef::DEFAULT {
            return Err(PoolProblem::DefaultStream.of(self.id()));
        }
        let shared = &self.inner().shared;
        if !Arc::ptr_eq(&stream.stream_state.shared, shared) {
            return Err(Error::ForeignStream);
        }
        self.state.check_awake()?;
        let user = self.allocator.open_pool(self.id())?;
        let capture = shared.device.capture()?;
        // The pool comes first: memory that the capture itself needs must come from it.
        user.allocator.begin_allocate_to_pool(user.id(), Filter::Stream(stream.handle()))?;
        // Another thread may allocate and free memory as soon as the capture has begun.
        user.state.keep_for_now();
        // SAFETY: 1. the handle keeps the stream alive.
        if let Err(error) = unsafe { capture.begin_capture(stream.handle(), mode) } {
            user.state.end_keep_for_now();
            user.allocator.end_allocate_to_pool(user.id())?;
            return Err(error.into());
        }
        user.state.keep();
        let begun = Capture { user, stream: stream.clone(), open: true };
        // The capture has an id now, so that all streams that join it are served.
        if let Some(id) = stream.stream_state.capture()? {
            self.inner().routes.change(Filter::Capture(id), self.id())?;
        }
        Ok(begun)
    }
}

impl<D: Device> Capture<D> {
    /// The pool of the capture.
    #[must_use]
    pub const fn pool(&self) -> &Pool<D> {
        &self.user
    }

    /// Ends the capture. Returns its graph, ready to launch.
    ///
    /// After a failure the capture has ended too, and the pool is usable.
    pub fn end(mut self) -> Result<Graph<D>, Error> {
        self.close()
    }

    fn close(&mut self) -> Result<Graph<D>, Error> {
        self.open = false;
        let (allocator, id) = (&self.user.allocator, self.user.id());
        let shared = &self.user.inner().shared;
        shared.origin.check()?;
        let capture = shared.device.capture()?;
        let mut graph = Graph { handle: None, user: allocator.open_pool(id)?, launching: Mutex::new(()) };
        // SAFETY: 1. the handle keeps the stream alive.
        let ended = unsafe { capture.end_capture(self.stream.handle()) }.map(|handle| graph.handle = Some(handle));
        // If this fails, or a tracker panics, the drop of the graph destroys it.
        allocator.end_allocate_to_pool(id)?;
        Ok(ended.map(|()| graph)?)
    }
}

impl<D: Device> Drop for Capture<D> {
    fn drop(&mut self) {
        if self.open {
            // A destructor cannot return a failure. The drop of the graph destroys it.
            let _ = self.close();
        }
    }
}

impl<D: Device> Graph<D> {
    /// The pool of the graph's memory.
    #[must_use]
    pub const fn pool(&self) -> &Pool<D> {
        &self.user
    }

    /// Queues all work of the graph.
    ///
    /// # Safety
    ///
    /// 1. Everything the graph uses besides memory of its pool is live, and stays so until the launch has finished.
    /// 2. No other graph of the same pool runs at the same time.
    /// 3. `stream` is a stream of this allocator's device.
    pub unsafe fn launch(&self, stream: &Stream<D>) -> Result<(), Error> {
        let Some(graph) = &self.handle else { return Ok(()) };
        let inner = self.user.inner();
        let _awake = self.user.state.stay_awake()?;
        let capture = inner.shared.device.capture()?;
        // This comes first, so that the memory is waited for even if the launch fails.
        inner.note_launch(&self.user.state, &stream.stream_state);
        let _alone = self.launching.lock();
        // SAFETY: 1. the handles keep graph and stream alive, and the lock keeps other launches out. 3 and 4. The
        // caller's promises.
        Ok(unsafe { capture.launch(graph, stream.handle()) }?)
    }
}

impl<D: Device> Drop for Graph<D> {
    fn drop(&mut self) {
        let shared = &self.user.inner().shared;
        if let Some(graph) = self.handle.take()
            && !shared.origin.is_inherited()
            && let Ok(capture) = shared.device.capture()
        {
            // SAFETY: 1. this value owns the graph, and launches in progress run to their end.
            // A destructor cannot return a failure.
            let _ = unsafe { capture.destroy_graph(graph) };
        }
    }
}

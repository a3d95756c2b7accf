//! Captures whose memory comes from a pool, and the graphs that they produce.

use std::sync::Arc;

use cachette_hal::{self as hal, CaptureMode, Device, StreamRef};

use super::{Filter, Pool, PoolId, PoolOptions, PoolProblem};
use crate::allocator::Allocator;
use crate::error::Error;
use crate::stream::Stream;

/// A capture under way; requests for streams that take part are served by its pool.
///
/// Dropped before its [`end`](Self::end), it is ended and its graph thrown away.
#[derive(Debug)]
pub struct Capture<D: Device> {
    user: Pool<D>,
    stream: Stream<D>,
    open: bool,
}

/// A captured graph. The memory it uses stays its own until the last graph of its pool is gone.
#[derive(Debug)]
pub struct Graph<D: Device> {
    /// `None` only while it is being dropped.
    handle: Option<hal::Graph>,
    user: Pool<D>,
}

impl<D: Device> Allocator<D> {
    /// Makes a pool for captures; graphs that share it must not run at the same time.
    #[must_use]
    pub fn create_capture_pool(&self) -> Pool<D> {
        self.add_pool(PoolId::of_capture, &PoolOptions::new())
    }
}

impl<D: Device> Pool<D> {
    /// Begins to capture `stream`, with memory from the pool.
    pub fn begin_capture(&self, stream: &Stream<D>, mode: CaptureMode) -> Result<Capture<D>, Error> {
        if stream.handle() == StreamRef::DEFAULT {
            return Err(PoolProblem::DefaultStream.of(self.id()));
        }
        let shared = &self.inner().shared;
        shared.origin.check()?;
        if !Arc::ptr_eq(stream.stream_state.shared(), shared) {
            return Err(Error::ForeignStream);
        }
        self.state.check_awake()?;
        let user = self.allocator.open_pool(self.id())?;
        let capture = shared.device.capture()?;
        // The pool first: whatever the capture itself needs must not come from elsewhere.
        user.allocator.begin_allocate_to_pool(user.id(), Filter::Stream(stream.handle()))?;
        // Another thread may allocate and free memory as soon as the capture has begun.
        let was_kept = user.state.keep();
        // SAFETY: 1. the stream is kept alive by its handle.
        if let Err(error) = unsafe { capture.begin_capture(stream.handle(), mode) } {
            if !was_kept {
                user.state.end_keep();
            }
            user.allocator.end_allocate_to_pool(user.id())?;
            return Err(error.into());
        }
        let begun = Capture { user, stream: stream.clone(), open: true };
        // Every stream that joins the capture is served, now that it has a number.
        if let Some(id) = stream.stream_state.capture()? {
            self.inner().routes.change(Filter::Capture(id), self.id())?;
        }
        Ok(begun)
    }
}

impl<D: Device> Capture<D> {
    /// The pool that serves it.
    #[must_use]
    pub const fn pool(&self) -> &Pool<D> {
        &self.user
    }

    /// Ends the capture; its graph, ready to launch.
    ///
    /// After a failure the capture is over all the same, and the pool is usable.
    pub fn end(mut self) -> Result<Graph<D>, Error> {
        let ended = self.close()?;
        Ok(Graph { handle: Some(ended), user: self.user.allocator.open_pool(self.user.id())? })
    }

    fn close(&mut self) -> Result<hal::Graph, Error> {
        self.open = false;
        let shared = &self.user.inner().shared;
        shared.origin.check()?;
        let capture = shared.device.capture()?;
        // SAFETY: 1. the stream is kept alive by its handle.
        let graph = unsafe { capture.end_capture(self.stream.handle()) };
        self.user.allocator.end_allocate_to_pool(self.user.id())?;
        Ok(graph?)
    }
}

impl<D: Device> Drop for Capture<D> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if let Ok(graph) = self.close()
            && let Ok(capture) = self.user.inner().shared.device.capture()
        {
            // SAFETY: 1. the capture above produced the graph, and no other code has its handle.
            // A destructor cannot return a failure.
            let _ = unsafe { capture.destroy_graph(graph) };
        }
    }
}

impl<D: Device> Graph<D> {
    /// The pool that its memory is of.
    #[must_use]
    pub const fn pool(&self) -> &Pool<D> {
        &self.user
    }

    /// Queues everything the graph recorded.
    ///
    /// # Safety
    ///
    /// 1. What the graph names besides memory of its pool is live, and stays so until the launch has finished.
    /// 2. No other graph of the same pool runs at the same time.
    /// 3. `stream` is one of this allocator's device.
    pub unsafe fn launch(&self, stream: &Stream<D>) -> Result<(), Error> {
        let Some(graph) = &self.handle else { return Ok(()) };
        let inner = self.user.inner();
        inner.shared.origin.check()?;
        let _awake = self.user.state.stay_awake()?;
        let capture = inner.shared.device.capture()?;
        // Noted first, so that the memory is waited for whatever the driver answers.
        inner.note_launch(&self.user.state, &stream.stream_state);
        // SAFETY: 1. graph and stream are kept alive by their handles. 3 and 4. The caller's promises.
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

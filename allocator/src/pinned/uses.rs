//! The streams and graphs that use a block: recorded while a caller owns it, and waited for after its free. Requests or
//! a background thread poll them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cachette_hal::{self as hal, CaptureStatus, Device, Progress};

use super::cache::PinnedCache;
use crate::blocks::BlockId;
use crate::fence::Fence;
use crate::pool::pool_state::PoolState;
use crate::pool::route::Routes;
use crate::stream_state::StreamState;
use crate::sync::Mutex;

pub(super) enum PinnedUser<D: Device> {
    /// A stream without a fence yet: the block is owned, the driver failed, or a stream that uses it is captured.
    Stream(Arc<StreamState<D>>),
    /// A fence at the end of a stream's uses.
    Fence(Arc<Fence<D>>),
    /// The graphs of a pool, which read or write the block at every launch. The pool lives as long as its graphs.
    Graphs(Arc<PoolState>),
    UnknownGraph,
}

/// The polling interval of the background thread while blocks are pending.
const REST: Duration = Duration::from_micros(100);

/// A block that its caller freed while streams or graphs still use it.
pub(super) type PinnedPending<D> = (BlockId, Vec<PinnedUser<D>>);

impl<D: Device> PinnedUser<D> {
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(one), Self::Stream(two)) => Arc::ptr_eq(one, two),
            (Self::Graphs(one), Self::Graphs(two)) => Arc::ptr_eq(one, two),
            (Self::UnknownGraph, Self::UnknownGraph) => true,
            _ => false,
        }
    }

    const fn stream(&self) -> Option<&Arc<StreamState<D>>> {
        if let Self::Stream(stream_state) = self { Some(stream_state) } else { None }
    }

    const fn fence(&self) -> Option<&Arc<Fence<D>>> {
        if let Self::Fence(fence) = self { Some(fence) } else { None }
    }
}

impl<D: Device> PinnedCache<D> {
    /// Records a use by a stream. `routes` are those of the stream's allocator, if they are known.
    pub(super) fn record_use(&self, id: BlockId, stream_state: &Arc<StreamState<D>>, routes: Option<&Routes>) {
        // The driver is queried before the lock is taken.
        let user = Self::user(stream_state, routes);
        self.blocks.lock().record_use(id, user);
    }

    /// Returns the stream, or the graph that captures its work.
    fn user(stream_state: &Arc<StreamState<D>>, routes: Option<&Routes>) -> PinnedUser<D> {
        match stream_state.capture_status() {
            Some(Ok(CaptureStatus::Active(id))) => {
                let entered = |routes: &Routes| routes.pool_for(stream_state.handle, || Ok(Some(id))).ok()?;
                let pool = routes.and_then(entered);
                pool.map_or(PinnedUser::UnknownGraph, |pool| PinnedUser::Graphs(Arc::clone(&pool)))
            }
            None | Some(Ok(_)) => PinnedUser::Stream(Arc::clone(stream_state)),
            // The stream may be captured, and late reuse is harmless.
            Some(Err(_)) => PinnedUser::UnknownGraph,
        }
    }

    /// Records a fence in every stream that uses a freed block. Does not, if that fails or a stream is captured.
    pub(super) fn record_fences(users: &mut Vec<PinnedUser<D>>) -> hal::Result<()> {
        let streams: Vec<_> = users.iter().filter_map(PinnedUser::stream).collect();
        if streams.iter().any(|stream_state| stream_state.is_capturing()) {
            return Ok(());
        }
        let marked = streams.into_iter().map(|stream_state| Fence::record(stream_state).map(Arc::new));
        let fences = marked.collect::<hal::Result<Vec<_>>>()?;
        users.retain(|user| user.stream().is_none());
        users.extend(fences.into_iter().map(PinnedUser::Fence));
        Ok(())
    }

    /// Frees a block without users. Any other block stays pending.
    pub(super) fn end_wait(
        &self,
        id: BlockId,
        users: Vec<PinnedUser<D>>,
    ) -> (Option<PinnedPending<D>>, hal::Result<()>) {
        if users.iter().all(|user| matches!(user, PinnedUser::Graphs(pool) if pool.is_abandoned())) {
            (None, self.free_pending(id))
        } else {
            (Some((id, users)), Ok(()))
        }
    }

    /// Records the fences that failed before, and frees the blocks without users.
    pub(super) fn process_events(&self) -> hal::Result<()> {
        // One thread at a time processes the blocks. Hits and frees do not take this lock.
        let _turn = self.turn.lock();
        let pending = std::mem::take(&mut *self.pending.lock());
        if pending.is_empty() {
            return Ok(());
        }
        let _relaxed = self.shared.relax_capture();
        let mut result = Ok(());
        // A stream runs in order, so the fences after one of these have not passed either.
        let mut ahead: Vec<(u64, u64)> = Vec::new();
        let mut poll = |fence: &Fence<D>| {
            let (stream, order) = fence.order_key();
            if ahead.iter().any(|first| first.0 == stream && first.1 <= order) {
                return Ok(false);
            }
            let polled = fence.poll();
            if polled != Ok(Progress::Done) {
                ahead.push((stream, order));
            }
            polled.map(Progress::is_done)
        };
        let mut left = Vec::new();
        for (id, mut users) in pending {
            result = result.and(Self::record_fences(&mut users));
            users.retain(|user| {
                let passed = user.fence().map_or(Ok(false), |fence| poll(fence));
                result = result.and(passed.map(drop));
                passed != Ok(true)
            });
            let (pending, freed) = self.end_wait(id, users);
            left.extend(pending);
            result = result.and(freed);
        }
        self.pending.lock().extend(left);
        result
    }

    /// Returns what `pick` finds among the users of pending blocks.
    fn users<T>(&self, pick: impl Fn(&PinnedUser<D>) -> Option<T>) -> Vec<T> {
        // A thread that processes events has removed the blocks from the list.
        let _turn = self.turn.lock();
        self.pending.lock().iter().flat_map(|(_, users)| users).filter_map(pick).collect()
    }

    /// Blocks the host until every recorded use has ended. Returns whether there was any.
    pub(super) fn wait_for_uses(&self) -> hal::Result<bool> {
        let fences = self.users(|user| user.fence().map(Arc::clone));
        fences.iter().try_for_each(|fence| fence.wait())?;
        Ok(!fences.is_empty())
    }

    /// Notifies the background thread of a pending block, if the thread is configured.
    pub(super) fn wake(self: &Arc<Self>) {
        if !self.works_in_background() {
            return;
        }
        let mut thread = self.worker.thread.lock();
        match &*thread {
            Some(running) if !running.is_finished() => running.thread().unpark(),
            _ if self.worker.stopped.load(Relaxed) => {}
            // Without a thread, requests poll.
            _ => *thread = (self.spawn)(Arc::clone(self)).ok(),
        }
    }

    fn works_in_background(&self) -> bool {
        self.shared.settings.config().pinned_use_background_threads()
    }

    fn work(&self) {
        while !self.worker.stopped.load(Relaxed) && self.works_in_background() {
            // The next request that processes events returns a failure.
            let _ = self.process_events();
            let streams = self.users(|user| (user.stream().is_some() || user.fence().is_some()).then_some(()));
            if streams.is_empty() {
                thread::park();
            } else {
                thread::park_timeout(REST);
            }
        }
    }
}

/// The background thread of a cache, if it has one. It sleeps while no block is pending, and ends with the allocator.
#[derive(Default)]
pub(super) struct Worker {
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Relaxed: the lock around `thread`, or the end of a rest, orders it.
    stopped: AtomicBool,
}

impl Worker {
    pub(super) fn stop(&self) {
        let running = {
            let mut thread = self.thread.lock();
            self.stopped.store(true, Relaxed);
            thread.take()
        };
        if let Some(running) = running {
            running.thread().unpark();
            // A thread that panicked needs no further handling.
            let _ = running.join();
        }
    }
}

/// Starts the background thread. Only caches of `'static` devices can have one, so the constructor selects this.
pub(super) fn spawn<D: Device + 'static>(cache: Arc<PinnedCache<D>>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("cachette-pinned".to_owned()).spawn(move || cache.work())
}

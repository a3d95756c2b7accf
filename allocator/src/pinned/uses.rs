//! The streams and graphs that use a block: recorded while a caller owns it, and waited for after it is freed, by
//! requests or by a background thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cachette_hal::{self as hal, CaptureStatus, Device, Progress};

use super::bucket::PinnedPlace;
use super::cache::PinnedCache;
use crate::fence::Fence;
use crate::pool::state::PoolState;
use crate::stream_state::StreamState;
use crate::sync::Mutex;

#[derive(Debug)]
pub(super) enum PinnedUser<D: Device> {
    Stream(Arc<StreamState<D>>),
    /// The graphs of a pool, which read or write the block at every launch. The pool lives as long as its graphs.
    Graphs(Arc<PoolState>),
    UnknownGraph,
}

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
        match self {
            Self::Stream(stream_state) => Some(stream_state),
            Self::Graphs(_) | Self::UnknownGraph => None,
        }
    }

    /// Whether a graph may still use the block.
    fn keeps(&self) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::Graphs(pool) => !pool.is_left(),
            Self::UnknownGraph => true,
        }
    }
}

/// A freed block, and the users that it waits for.
#[derive(Debug)]
struct Waiter<D: Device> {
    place: PinnedPlace,
    users: Vec<PinnedUser<D>>,
}

impl<D: Device> Waiter<D> {
    fn is_kept(&self) -> bool {
        self.users.iter().any(PinnedUser::keeps)
    }
}

/// One point that a block waits for.
#[derive(Debug)]
struct PinnedWaiting<D: Device> {
    fence: Arc<Fence<D>>,
    /// Shared by all points of the block. The release of the last reference shows that no point is left.
    waiter: Arc<Waiter<D>>,
}

/// Blocks that their callers freed while streams or graphs still use them. Each is in one of the lists.
#[derive(Debug)]
pub(super) struct PinnedPending<D: Device> {
    /// For every stream state that uses such blocks, by number: the points to wait for, in the order they were marked.
    queues: Vec<(u64, VecDeque<PinnedWaiting<D>>)>,
    /// Blocks whose uses are not marked yet: the driver failed, or a stream that uses them is captured.
    unmarked: Vec<Waiter<D>>,
    kept: Vec<Waiter<D>>,
}

impl<D: Device> Default for PinnedPending<D> {
    fn default() -> Self {
        Self { queues: Vec::new(), unmarked: Vec::new(), kept: Vec::new() }
    }
}

impl<D: Device> PinnedPending<D> {
    pub(super) fn awaits_streams(&self) -> bool {
        !self.queues.is_empty() || !self.unmarked.is_empty()
    }

    /// Lets a block wait for points, at least one.
    fn wait(&mut self, waiter: Waiter<D>, fences: Vec<Fence<D>>) {
        let waiter = Arc::new(waiter);
        for fence in fences {
            let (stream_state, _) = fence.point();
            let waiting = PinnedWaiting { fence: Arc::new(fence), waiter: Arc::clone(&waiter) };
            match self.queues.iter_mut().find(|(of, _)| *of == stream_state) {
                Some((_, queue)) => queue.push_back(waiting),
                None => self.queues.push((stream_state, VecDeque::from([waiting]))),
            }
        }
    }

    fn heads(&self) -> Vec<(u64, Arc<Fence<D>>)> {
        self.queues.iter().filter_map(|(of, queue)| Some((*of, Arc::clone(&queue.front()?.fence)))).collect()
    }

    /// Removes the first point of each of the stream states; the blocks that wait for no other.
    fn pass(&mut self, stream_states: &[u64]) -> Vec<Waiter<D>> {
        let passing = self.queues.iter_mut().filter(|(of, _)| stream_states.contains(of));
        let passed = passing.filter_map(|(_, queue)| queue.pop_front());
        let done = passed.filter_map(|waiting| Arc::into_inner(waiting.waiter)).collect();
        self.queues.retain(|(_, queue)| !queue.is_empty());
        done
    }

    pub(super) fn into_places(self) -> Vec<PinnedPlace> {
        let waiting = self.queues.into_iter().flat_map(|(_, queue)| queue);
        let waiters = waiting.filter_map(|waiting| Arc::into_inner(waiting.waiter));
        waiters.chain(self.kept).chain(self.unmarked).map(|waiter| waiter.place).collect()
    }
}

impl<D: Device> PinnedCache<D> {
    /// Records that `stream_state` uses a block that a caller has.
    pub(super) fn record_use(&self, place: PinnedPlace, stream_state: &Arc<StreamState<D>>) {
        // The driver is asked before the lock is taken.
        let user = self.user(stream_state);
        self.bucket(place).lock().record_use(place.slot, user);
    }

    /// The stream, or the graph that its work is captured into.
    fn user(&self, stream_state: &Arc<StreamState<D>>) -> PinnedUser<D> {
        let stream = || PinnedUser::Stream(Arc::clone(stream_state));
        let Ok(capture) = stream_state.shared().device.capture() else { return stream() };
        // SAFETY: 1. the stream state keeps its stream alive.
        match unsafe { capture.capture_status(stream_state.handle()) } {
            Ok(CaptureStatus::Active(id)) => {
                let own = Arc::ptr_eq(stream_state.shared(), &self.shared);
                let routed = || self.routes.pool_for(stream_state.handle(), || Ok(Some(id))).ok()?;
                own.then(routed).flatten().map_or(PinnedUser::UnknownGraph, PinnedUser::Graphs)
            }
            Ok(_) => stream(),
            // It may be captured, and memory that serves too late does no harm.
            Err(_) => PinnedUser::UnknownGraph,
        }
    }

    /// Marks the end of every stream that uses a freed block; later, if that fails or a stream is captured.
    pub(super) fn mark(&self, place: PinnedPlace, mut users: Vec<PinnedUser<D>>) -> hal::Result<()> {
        let streams: Vec<_> = users.iter().filter_map(PinnedUser::stream).collect();
        let mut failed = Ok(());
        if !streams.iter().any(|stream_state| stream_state.is_capturing()) {
            let fences: hal::Result<Vec<_>> =
                streams.into_iter().map(|stream_state| Fence::record(stream_state)).collect();
            match fences {
                Ok(fences) => {
                    users.retain(|user| user.stream().is_none());
                    let waiter = Waiter { place, users };
                    if fences.is_empty() {
                        self.end_wait(waiter);
                    } else {
                        self.pending.lock().wait(waiter, fences);
                    }
                    return Ok(());
                }
                Err(error) => failed = Err(error),
            }
        }
        self.pending.lock().unmarked.push(Waiter { place, users });
        failed
    }

    /// Frees a block that waits for no stream any more, unless a graph keeps it.
    fn end_wait(&self, waiter: Waiter<D>) {
        if waiter.is_kept() {
            self.pending.lock().kept.push(waiter);
        } else {
            self.bucket(waiter.place).lock().free(waiter.place.slot);
        }
    }

    /// Marks the uses that could not be marked before, and frees the blocks that have no users any more.
    pub(super) fn process_events(&self) -> hal::Result<()> {
        {
            let pending = self.pending.lock();
            if !pending.awaits_streams() && pending.kept.is_empty() {
                return Ok(());
            }
        }
        // One thread asks at a time, so that the first points stay first. No hit and no free comes here.
        let _turn = self.turn.lock();
        let _relaxed = self.shared.relax_capture();
        let unmarked = std::mem::take(&mut self.pending.lock().unmarked).into_iter();
        let marked = unmarked.map(|waiter| self.mark(waiter.place, waiter.users)).fold(Ok(()), Result::and);
        let result = marked.and(self.pass_points());
        let unkept: Vec<_> = self.pending.lock().kept.extract_if(.., |waiter| !waiter.is_kept()).collect();
        for waiter in unkept {
            self.end_wait(waiter);
        }
        result
    }

    /// Asks every stream for its first point until none has passed one.
    fn pass_points(&self) -> hal::Result<()> {
        let mut result = Ok(());
        loop {
            // What is asked is held here, so that no event goes back to its pool under the lock.
            let heads = self.pending.lock().heads();
            let mut passed = Vec::new();
            for (stream_state, fence) in &heads {
                match fence.poll() {
                    Ok(Progress::Done) => passed.push(*stream_state),
                    Ok(Progress::Pending) => {}
                    Err(error) => result = result.and(Err(error)),
                }
            }
            if passed.is_empty() {
                return result;
            }
            let done = self.pending.lock().pass(&passed);
            for waiter in done {
                self.end_wait(waiter);
            }
        }
    }

    /// Blocks the host until every marked use has ended; whether there was any.
    pub(super) fn wait_for_uses(&self) -> hal::Result<bool> {
        let fences: Vec<_> = {
            let pending = self.pending.lock();
            let waiting = pending.queues.iter().flat_map(|(_, queue)| queue);
            waiting.map(|one| Arc::clone(&one.fence)).collect()
        };
        fences.iter().try_for_each(|fence| fence.wait())?;
        Ok(!fences.is_empty())
    }
}

/// How long the thread rests while blocks wait for streams.
const REST: Duration = Duration::from_micros(100);

/// The background thread of a cache, if it has one. It sleeps while nothing waits, and ends with the allocator.
#[derive(Debug, Default)]
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
            // A thread that panicked has nothing left to do.
            let _ = running.join();
        }
    }
}

impl<D: Device> PinnedCache<D> {
    /// Lets the background thread know that a block waits, if there is to be such a thread.
    pub(super) fn wake(self: &Arc<Self>) {
        if !self.works_in_background() {
            return;
        }
        let mut thread = self.worker.thread.lock();
        match &*thread {
            Some(running) if !running.is_finished() => running.thread().unpark(),
            _ if self.worker.stopped.load(Relaxed) => {}
            _ => {
                // Without a thread, requests ask by themselves.
                *thread = (self.spawn)(Arc::clone(self)).ok();
            }
        }
    }

    fn works_in_background(&self) -> bool {
        self.shared.settings.config().pinned_use_background_threads()
    }

    fn work(&self) {
        while !self.worker.stopped.load(Relaxed) && self.works_in_background() {
            // The next request that processes events receives a failure.
            let _ = self.process_events();
            if self.pending.lock().awaits_streams() {
                thread::park_timeout(REST);
            } else {
                thread::park();
            }
        }
    }
}

/// Begins the thread of a cache. Only an allocator that outlives every borrow can have one, so this is chosen where
/// that is known: when the allocator is made.
pub(super) fn spawn<D: Device + 'static>(cache: Arc<PinnedCache<D>>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("cachette-pinned".to_owned()).spawn(move || cache.work())
}

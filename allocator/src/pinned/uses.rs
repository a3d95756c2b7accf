//! The streams and graphs that use a block: recorded while a caller owns it, and waited for after it is freed.

use std::sync::Arc;

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, CaptureStatus, Device, Progress};

use super::bucket::PinnedPlace;
use super::cache::{PinnedCache, unpoisoned};
use super::pending::Waiter;
use crate::fence::Fence;
use crate::pool::state::PoolState;
use crate::stream_state::StreamState;

/// Who was recorded to use a block.
#[derive(Debug)]
pub(super) struct PinnedUses<D: Device> {
    /// Streams that run work with it.
    users: Vec<Arc<StreamState<D>>>,
    /// Graphs that captured work with it.
    keepers: Vec<GraphOwner>,
}

/// What keeps a block whose use was captured: the graph reads or writes it at every launch.
#[derive(Debug)]
pub(super) enum GraphOwner {
    /// The pool that serves the capture, and lives as long as its graphs.
    Pool(Arc<PoolState>),
    /// A graph that the allocator knows nothing of.
    Unknown,
}

impl GraphOwner {
    /// Whether no graph can use the block any more.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Pool(pool) => pool.is_left(),
            Self::Unknown => false,
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pool(one), Self::Pool(two)) => Arc::ptr_eq(one, two),
            (Self::Unknown, Self::Unknown) => true,
            _ => false,
        }
    }
}

impl<D: Device> Default for PinnedUses<D> {
    fn default() -> Self {
        Self { users: Vec::new(), keepers: Vec::new() }
    }
}

impl<D: Device> PinnedUses<D> {
    /// Adds a use by a stream, or by the graph that it is captured into.
    pub(super) fn add(&mut self, stream_state: &Arc<StreamState<D>>, keeper: Option<GraphOwner>) {
        match keeper {
            Some(keeper) if !self.keepers.iter().any(|known| known.is(&keeper)) => {
                self.keepers.push(keeper);
            }
            None if !self.users.iter().any(|known| Arc::ptr_eq(known, stream_state)) => {
                self.users.push(Arc::clone(stream_state));
            }
            _ => {}
        }
    }
}

impl<D: Device> PinnedCache<D> {
    /// Remembers that `stream_state` uses a block that a caller has.
    pub(super) fn record_use(&self, place: PinnedPlace, stream_state: &Arc<StreamState<D>>) {
        let keeper = self.keeper(stream_state);
        let mut bucket = self.bucket(place).lock();
        bucket.note_use(place.slot, stream_state, keeper);
    }

    /// What keeps a block that `stream_state` uses, if the use is captured.
    fn keeper(&self, stream_state: &Arc<StreamState<D>>) -> Option<GraphOwner> {
        let capture = stream_state.shared().device.capture().ok()?;
        // SAFETY: 1. the stream state keeps its stream alive.
        match unsafe { capture.capture_status(stream_state.handle()) } {
            Ok(CaptureStatus::Active(id)) => {
                let own = Arc::ptr_eq(stream_state.shared(), &self.shared);
                let led = || self.routes.pool_for(stream_state.handle(), || Ok(Some(id))).ok();
                let pool = own.then(led).flatten();
                Some(pool.flatten().map_or(GraphOwner::Unknown, GraphOwner::Pool))
            }
            Ok(_) => None,
            // It may be captured, and memory that serves too late does no harm.
            Err(_) => Some(GraphOwner::Unknown),
        }
    }

    /// Marks the present end of every stream that uses a freed block. On failure, and during a capture, the uses are
    /// kept and marked later.
    pub(super) fn mark(&self, place: PinnedPlace, uses: PinnedUses<D>) -> hal::Result<()> {
        if uses.users.iter().any(|stream_state| stream_state.is_capturing()) {
            self.pending.lock().postpone(place, uses);
            return Ok(());
        }
        let fences: hal::Result<Vec<_>> = uses.users.iter().map(|stream_state| Fence::record(stream_state)).collect();
        match fences {
            Ok(fences) => {
                let keepers = uses.keepers;
                let waiter = Waiter { place, keepers };
                if fences.is_empty() {
                    self.end_wait(waiter);
                } else {
                    self.pending.lock().wait(waiter, fences);
                }
                Ok(())
            }
            Err(error) => {
                self.pending.lock().postpone(place, uses);
                Err(error)
            }
        }
    }

    /// Frees a block that waits for no stream any more, unless a graph keeps it.
    fn end_wait(&self, waiter: Waiter) {
        if waiter.keepers.iter().all(GraphOwner::is_gone) {
            self.bucket(waiter.place).lock().free(waiter.place.slot);
        } else {
            self.pending.lock().keep(waiter);
        }
    }

    /// Marks the uses that could not be marked before, and frees the blocks that have no users any more.
    pub(super) fn process_events(&self) -> hal::Result<()> {
        if !self.pending.lock().is_any() {
            return Ok(());
        }
        // One thread asks at a time, so that the first points stay first. No hit and no free comes here.
        let _turn = unpoisoned(&self.turn);
        // A capture may be under way, and forbids to ask whether a point has passed.
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        let mut result = Ok(());
        let unmarked = self.pending.lock().take_unmarked();
        for (place, uses) in unmarked {
            result = result.and(self.mark(place, uses));
        }
        result = result.and(self.pass_points());
        let unkept = self.pending.lock().take_unkept();
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
        let fences = self.pending.lock().fences();
        fences.iter().try_for_each(|fence| fence.wait())?;
        Ok(!fences.is_empty())
    }
}

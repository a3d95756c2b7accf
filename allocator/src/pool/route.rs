//! Routes: the pool that serves a request.
//!
//! A thread may enter pools, and the pool entered last serves its requests. This is thread-local, so it costs other
//! threads nothing. Other routes direct requests of any thread to a pool, by stream, by capture or by a function. While
//! such a route exists, requests to the default pool take the slow path, which checks the routes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cachette_hal::{self as hal, CaptureId, StreamRef};

use super::pool_state::{PoolEntry, PoolState};
use super::{PoolId, PoolProblem};
use crate::error::Error;
use crate::sync::{RwLock, thread};

const NO_HEAP: (u64, StreamRef, *const ()) = (0, StreamRef::DEFAULT, std::ptr::null());

thread_local! {
    /// The heap that last served this thread inside a pool, with its allocator and stream.
    static LAST: Cell<(u64, StreamRef, *const ())> = const { Cell::new(NO_HEAP) };
    static ENTERED: RefCell<Vec<EnteredPool>> = const { RefCell::new(Vec::new()) };
}

struct EnteredPool {
    /// The number of the allocator whose requests it serves.
    allocator: u64,
    /// The stream whose requests it serves; `None` for all streams.
    stream: Option<StreamRef>,
    pool: PoolEntry,
    ticket: u64,
}

/// Returns the heap that last served `stream` in the pool that this thread entered last, if known. It is the pointer
/// that [`remember`] stored for the same allocator; since then no pool was entered or left.
#[inline]
pub(crate) fn last(allocator: u64, stream: StreamRef) -> Option<NonNull<()>> {
    let (of, last, heap) = LAST.get();
    let known = of == allocator && last == stream;
    if known { NonNull::new(heap.cast_mut()) } else { None }
}

pub(crate) fn remember(allocator: u64, stream: StreamRef, heap: NonNull<()>) {
    LAST.set((allocator, stream, heap.as_ptr()));
}

/// Returns the last entered pool of this thread that serves this allocator and stream.
pub(crate) fn pool_inside(allocator: u64, stream: StreamRef) -> Option<Arc<PoolState>> {
    // During thread exit the list is gone, and no pool is entered.
    let serves = |entry: &&EnteredPool| entry.allocator == allocator && entry.stream.is_none_or(|only| only == stream);
    let found =
        ENTERED.try_with(|entered| entered.borrow().iter().rev().find(serves).map(|entry| Arc::clone(&entry.pool)));
    found.ok().flatten()
}

/// Enters a pool on this thread. Returns a ticket for `leave`. Does nothing during thread exit.
pub(super) fn enter(allocator: u64, stream: Option<StreamRef>, pool: &Arc<PoolState>) -> u64 {
    thread_local! {
        static NEXT: Cell<u64> = const { Cell::new(0) };
    }
    let ticket = NEXT.replace(NEXT.get() + 1);
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        entered.push(EnteredPool { allocator, stream, pool: PoolEntry::new(pool), ticket });
        thread::set_entered_pools(entered.len());
    });
    LAST.set(NO_HEAP);
    ticket
}

/// Leaves a pool. Pools can be left in any order.
pub(super) fn leave(ticket: u64) {
    // During thread exit the list is already gone.
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        entered.retain(|entry| entry.ticket != ticket);
        thread::set_entered_pools(entered.len());
        LAST.set(NO_HEAP);
    });
}

/// The requests that a route directs to its pool.
#[derive(Clone)]
#[non_exhaustive]
pub enum Filter {
    /// All requests.
    All,
    /// Requests for one stream.
    Stream(StreamRef),
    /// Requests for the streams of one capture.
    Capture(CaptureId),
    /// Requests for streams that a function selects; see [`Filter::function`].
    Function(Arc<dyn Fn(StreamRef) -> bool + Send + Sync>),
}

impl Filter {
    /// Selects the requests for streams for which `matches` returns `true`.
    ///
    /// It is called on the thread of the request, possibly on several threads at once. It must not call the allocator.
    pub fn function(matches: impl Fn(StreamRef) -> bool + Send + Sync + 'static) -> Self {
        Self::Function(Arc::new(matches))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("All"),
            Self::Stream(stream) => f.debug_tuple("Stream").field(stream).finish(),
            Self::Capture(id) => f.debug_tuple("Capture").field(id).finish(),
            Self::Function(_) => f.debug_tuple("Function").finish_non_exhaustive(),
        }
    }
}

/// The routes of one allocator, except pools that threads have entered.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<Vec<(Filter, Arc<PoolState>)>>);

impl Routes {
    pub(super) fn begin(&self, filter: Filter, pool: &Arc<PoolState>) -> Result<(), Error> {
        let mut list = self.0.write();
        if list.iter().any(|(_, other)| other.id == pool.id) {
            return Err(PoolProblem::Begun.of(pool.id));
        }
        list.push((filter, Arc::clone(pool)));
        Ok(())
    }

    pub(super) fn change(&self, filter: Filter, id: PoolId) -> Result<(), Error> {
        let mut list = self.0.write();
        list.iter_mut().find(|(_, pool)| pool.id == id).ok_or(PoolProblem::NotBegun.of(id))?.0 = filter;
        Ok(())
    }

    pub(super) fn end(&self, id: PoolId) -> Result<Arc<PoolState>, Error> {
        let mut list = self.0.write();
        let index = list.iter().position(|(_, pool)| pool.id == id);
        let (filter, pool) = list.remove(index.ok_or(PoolProblem::NotBegun.of(id))?);
        // The caller's function is dropped without this lock.
        drop(list);
        drop(filter);
        Ok(pool)
    }

    /// Returns whether a route leads the requests of this one stream to a pool.
    pub(crate) fn names(&self, stream: StreamRef) -> bool {
        self.0.read().iter().any(|(filter, _)| matches!(filter, Filter::Stream(only) if *only == stream))
    }

    /// Calls `set` with whether there are routes. None begins or ends before it returns, so what several threads set
    /// agrees with the list. `set` may lock heaps: no thread that has locked one asks for routes.
    pub(crate) fn tell(&self, set: impl FnOnce(bool)) {
        let list = self.0.read();
        set(!list.is_empty());
    }

    /// Enters the pool of the last begun route that matches `stream`. `capture` returns the stream's capture. If it
    /// fails, this fails too, since the memory of a graph could come from the wrong pool.
    pub(crate) fn pool_for(
        &self,
        stream: StreamRef,
        capture: impl Fn() -> hal::Result<Option<CaptureId>>,
    ) -> hal::Result<Option<PoolEntry>> {
        for (filter, pool) in self.0.read().iter().rev() {
            let matches = match filter {
                Filter::All => true,
                Filter::Stream(only) => *only == stream,
                Filter::Capture(id) => capture()? == Some(*id),
                Filter::Function(matches) => matches(stream),
            };
            if matches {
                return Ok(Some(PoolEntry::new(pool)));
            }
        }
        Ok(None)
    }
}

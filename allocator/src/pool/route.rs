//! Which pool a request goes to.
//!
//! A thread may enter pools, and the pool entered last serves its requests. This is thread-local, so it costs other
//! threads nothing. Other routes direct requests of any thread to a pool, by stream, by capture or by a function. While
//! such a route exists, requests to the default pool take the slow path, which checks the routes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, CaptureId, StreamRef};

use super::state::PoolState;
use super::{PoolId, PoolProblem};
use crate::error::Error;
use crate::sync::RwLock;

const NO_HEAP: (u64, StreamRef, *const ()) = (0, StreamRef::DEFAULT, std::ptr::null());

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The heap that last served this thread inside a pool: for which allocator and stream, and where it is.
    static LAST: Cell<(u64, StreamRef, *const ())> = const { Cell::new(NO_HEAP) };
    static ENTERED: RefCell<Vec<EnteredPool>> = const { RefCell::new(Vec::new()) };
}

/// A pool that a thread has entered. While it is, the pool's heaps go to no other pool, even after a forgotten guard.
#[derive(Debug)]
struct EnteredPool {
    /// Which allocator's requests it serves, by its number.
    allocator: u64,
    /// Which stream's, if not every one's.
    stream: Option<StreamRef>,
    pool: Arc<PoolState>,
    ticket: u64,
}

impl Drop for EnteredPool {
    fn drop(&mut self) {
        self.pool.entered.fetch_sub(1, Relaxed);
    }
}

#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() != 0
}

/// The heap that last served `stream` in the pool that this thread entered last, if it is known; a pointer that
/// [`remember`] was given for the same allocator, since when no pool was entered or left.
#[inline]
pub(crate) fn last(allocator: u64, stream: StreamRef) -> Option<NonNull<()>> {
    let (of, last, heap) = LAST.get();
    let known = of == allocator && last == stream;
    if known { NonNull::new(heap.cast_mut()) } else { None }
}

pub(crate) fn remember(allocator: u64, stream: StreamRef, heap: NonNull<()>) {
    LAST.set((allocator, stream, heap.as_ptr()));
}

/// The pool that this thread entered last, of those that serve this allocator and stream.
pub(crate) fn pool_inside(allocator: u64, stream: StreamRef) -> Option<Arc<PoolState>> {
    // At the end of the thread it is inside nothing any more.
    let serves = |entry: &&EnteredPool| entry.allocator == allocator && entry.stream.is_none_or(|only| only == stream);
    let found =
        ENTERED.try_with(|entered| entered.borrow().iter().rev().find(serves).map(|entry| Arc::clone(&entry.pool)));
    found.ok().flatten()
}

/// Enters a pool on this thread; the number under which it is left. At the end of the thread nothing is entered.
pub(super) fn enter(allocator: u64, stream: Option<StreamRef>, pool: Arc<PoolState>) -> u64 {
    thread_local! {
        static NEXT: Cell<u64> = const { Cell::new(0) };
    }
    let ticket = NEXT.replace(NEXT.get() + 1);
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        pool.entered.fetch_add(1, Relaxed);
        entered.push(EnteredPool { allocator, stream, pool, ticket });
        DEPTH.set(entered.len());
    });
    LAST.set(NO_HEAP);
    ticket
}

/// Leaves a pool, in whatever order.
pub(super) fn leave(ticket: u64) {
    // At the end of the thread there is nothing to leave any more.
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        entered.retain(|entry| entry.ticket != ticket);
        DEPTH.set(entered.len());
        LAST.set(NO_HEAP);
    });
}

/// Which requests a route leads to its pool.
#[derive(Clone)]
#[non_exhaustive]
pub enum Filter {
    /// All.
    All,
    /// Those for a stream.
    Stream(StreamRef),
    /// Those for streams that take part in a capture.
    Capture(CaptureId),
    /// Those for streams of which a function says so; see [`Filter::function`].
    Function(Arc<dyn Fn(StreamRef) -> bool + Send + Sync>),
}

impl Filter {
    /// Leads the requests for streams of which `leads` says so.
    ///
    /// It is called on the thread of the request, several at once, and must not call the allocator.
    pub fn function(leads: impl Fn(StreamRef) -> bool + Send + Sync + 'static) -> Self {
        Self::Function(Arc::new(leads))
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

/// The routes of one allocator, besides what threads have entered.
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

    /// Lets the route to a pool lead other requests.
    pub(super) fn change(&self, filter: Filter, id: PoolId) -> Result<(), Error> {
        let mut list = self.0.write();
        list.iter_mut().find(|(_, pool)| pool.id == id).ok_or(PoolProblem::NotBegun.of(id))?.0 = filter;
        Ok(())
    }

    pub(super) fn end(&self, id: PoolId) -> Result<Arc<PoolState>, Error> {
        let mut list = self.0.write();
        let index = list.iter().position(|(_, pool)| pool.id == id);
        let (filter, pool) = list.remove(index.ok_or(PoolProblem::NotBegun.of(id))?);
        // The end of a caller's function is not this lock's affair.
        drop(list);
        drop(filter);
        Ok(pool)
    }

    pub(crate) fn are_there(&self) -> bool {
        !self.0.read().is_empty()
    }

    /// The pool that serves `stream`: that of the route begun last. `capture` tells the stream's capture; where it
    /// fails, the memory of a graph could come from the wrong pool, so this fails too.
    pub(crate) fn pool_for(
        &self,
        stream: StreamRef,
        capture: impl Fn() -> hal::Result<Option<CaptureId>>,
    ) -> hal::Result<Option<Arc<PoolState>>> {
        for (filter, pool) in self.0.read().iter().rev() {
            let leads = match filter {
                Filter::All => true,
                Filter::Stream(only) => *only == stream,
                Filter::Capture(id) => capture()? == Some(*id),
                Filter::Function(leads) => leads(stream),
            };
            if leads {
                return Ok(Some(Arc::clone(pool)));
            }
        }
        Ok(None)
    }
}

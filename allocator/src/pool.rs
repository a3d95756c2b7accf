//! Pools: separate memory for some requests.
//!
//! One pool serves each request: the default pool, or the pool that the request is routed to. Pools do not share
//! heaps, so the blocks of a pool never serve requests of another pool. A pool may have a separate source.
//!
//! ```
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let pool = allocator.create_pool();
//! let direct = pool.allocate(1 << 20, &stream)?;
//! {
//!     let _inside = pool.enter(&stream)?;
//!     let routed = allocator.allocate(1 << 20, &stream)?; // on this thread and stream: from the pool
//! }
//! let outside = allocator.allocate(1 << 20, &stream)?;
//! assert_eq!(pool.stats().allocations, 1);
//! # drop((direct, outside));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A pool lives as long as it has users: owners, guards or graphs. Then its unused segments are released to the device.
//! Segments with live allocations are released when those are freed. Until then a caller may open the pool again by its
//! id.

mod capture;
mod checkpoint;
mod operations;
mod options;
pub(crate) mod pool_state;
mod problem;
mod registry;
pub(crate) mod route;

use std::convert::identity;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{AnyDevice, Device};

use crate::allocation::Allocation;
use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::blocks::BlockState;
use crate::error::Error;
use crate::heap::Heap;
use crate::label::Label;
use crate::stats::{Counted, Row};
use crate::stream::Stream;
use pool_state::PoolState;

pub use capture::{Capture, Graph};
pub use checkpoint::{Checkpoint, Restored};
pub(crate) use checkpoint::{SavedBlock, settled};
pub use options::{PoolId, PoolOptions, Priority};
pub use problem::PoolProblem;
pub(crate) use registry::Pools;
pub use route::Filter;

/// One user of a pool. The drop of the last user releases the pool.
pub struct Pool<D: Device = AnyDevice> {
    allocator: Allocator<D>,
    pub(crate) state: Arc<PoolState>,
}

/// The statistics of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Allocated blocks.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes held from the device or from the pool's source.
    pub reserved_bytes: u64,
}

impl<D: Device> Allocator<D> {
    /// Creates a pool.
    #[must_use]
    pub fn create_pool(&self) -> Pool<D> {
        self.add_pool(PoolId::new, &PoolOptions::new())
    }

    /// Adds a pool with a new id, and skips ids that are already in use.
    fn add_pool(&self, name: fn() -> PoolId, options: &PoolOptions) -> Pool<D> {
        loop {
            if let Ok(state) = self.inner().pools.add(PoolState::new(name(), options.clone())) {
                return Pool { allocator: self.clone(), state };
            }
        }
    }

    /// Creates a pool with `options`.
    pub fn create_pool_with(&self, options: PoolOptions) -> Result<Pool<D>, Error> {
        let Some(id) = options.id else { return Ok(self.add_pool(PoolId::new, &options)) };
        self.inner().remove_if_dead(id);
        Ok(Pool { allocator: self.clone(), state: self.inner().pools.add(PoolState::new(id, options))? })
    }

    /// Adds a user to a pool. A released pool can be opened while any memory in it is allocated.
    pub fn open_pool(&self, id: PoolId) -> Result<Pool<D>, Error> {
        self.inner().remove_if_dead(id);
        Ok(Pool { allocator: self.clone(), state: self.inner().pools.open(id)? })
    }

    pub(crate) fn pools_tagged(&self, tag: &str) -> Result<Vec<Pool<D>>, Error> {
        let tagged = self.inner().pools.select(|state| state.is_used() && state.options.tag == tag);
        if tag.is_empty() || tagged.is_empty() {
            return Err(PoolProblem::NoTag.of(PoolId::DEFAULT));
        }
        tagged.into_iter().map(|state| self.open_pool(state.id)).collect()
    }

    /// Routes requests of every thread to a pool, and counts as its user, until
    /// [`end_allocate_to_pool`](Self::end_allocate_to_pool).
    pub fn begin_allocate_to_pool(&self, id: PoolId, filter: Filter) -> Result<(), Error> {
        let inner = self.inner();
        // Until the route exists, a tracker may panic.
        let user = Pool { allocator: self.clone(), state: inner.pools.open(id)? };
        for heap in inner.heaps_of(&user.state) {
            // A capture that begins now cannot poll events. The next request retries a failure.
            let _ = heap.process_events();
        }
        let state = inner.pools.open(id)?;
        if let Err(error) = inner.routes.begin(filter, &state) {
            inner.release_pool(&state);
            return Err(error);
        }
        inner.refresh_routes();
        Ok(())
    }

    /// Ends the route to a pool. Threads that have entered the pool stay in it.
    pub fn end_allocate_to_pool(&self, id: PoolId) -> Result<(), Error> {
        let inner = self.inner();
        // Its drop ends the use of the pool, even if a tracker panics.
        let user = Pool { allocator: self.clone(), state: inner.routes.end(id)? };
        inner.refresh_routes();
        if inner.shared.settings.reuses_in_captures.load(Relaxed) {
            for heap in inner.heaps_of(&user.state) {
                // The next request retries a failure.
                let _ = heap.process_events();
            }
        }
        Ok(())
    }
}

impl<D: Device> Pool<D> {
    /// The id of the pool.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.state.id
    }

    /// The number of users.
    #[must_use]
    pub fn use_count(&self) -> u64 {
        self.state.uses.load(Relaxed)
    }

    fn inner(&self) -> &AllocatorState<D> {
        self.allocator.inner()
    }

    /// The allocator of the pool.
    #[must_use]
    pub const fn allocator(&self) -> &Allocator<D> {
        &self.allocator
    }

    /// Pins the memory of the pool until its last user is gone, as a capture does. No segment is released, and no chunk
    /// moves. It is for graphs that the caller captures without this crate.
    pub fn keep(&self) {
        self.state.keep();
    }

    /// Records that graphs launched without this crate may use the memory of the pool, in any stream of the allocator.
    ///
    /// When the last user is gone, the memory serves other requests only after the work queued in those streams.
    pub fn mark_external_graph_use(&self) {
        for heap in self.inner().heaps.all() {
            self.inner().note_launch(&self.state, &heap.stream_state);
        }
    }

    /// Sets whether the pool's free blocks serve requests of other pools before those fail.
    pub fn set_use_on_oom(&self, on: bool) {
        self.state.use_on_oom.store(on, Relaxed);
    }

    /// Disables splits of blocks, or enables them again. Segments that already contain several blocks do not change.
    /// Streams that have memory in elastic segments of the pool keep them, and these always split.
    pub fn set_no_split(&self, on: bool) {
        let _turn = self.inner().config_turn.lock();
        self.state.no_split.store(on, Relaxed);
        for heap in self.inner().heaps_of(&self.state) {
            let mut state = heap.state.lock();
            state.policy.no_split = on && !heap.is_elastic();
        }
    }

    /// Allocates `bytes` bytes from the pool for work in `stream`.
    pub fn allocate(&self, bytes: u64, stream: &Stream<D>) -> Result<Allocation<D>, Error> {
        self.allocator.allocate_fast(bytes, self.heap(stream)?, Label::OWNED, identity)
    }

    fn heap(&self, stream: &Stream<D>) -> Result<&Arc<Heap<D>>, Error> {
        if !Arc::ptr_eq(&stream.heap.shared, &self.inner().shared) {
            return Err(Error::ForeignStream);
        }
        self.inner().heap_of_stream_state(&self.state, &stream.stream_state)
    }

    /// Routes this thread's requests for `stream` to the pool while the guard lives. The last entered pool wins.
    pub fn enter(&self, stream: &Stream<D>) -> Result<PoolGuard<'_, D>, Error> {
        self.heap(stream)?;
        Ok(self.enter_for(Some(stream)))
    }

    /// Routes this thread's requests for every stream to the pool while the guard lives.
    #[must_use = "the pool is left when the guard is dropped"]
    pub fn enter_all(&self) -> PoolGuard<'_, D> {
        self.enter_for(None)
    }

    fn enter_for(&self, stream: Option<&Stream<D>>) -> PoolGuard<'_, D> {
        let ticket = route::enter(self.inner().identity, stream.map(Stream::handle), &self.state);
        PoolGuard { ticket, _stream: stream.cloned(), _of_thread: PhantomData }
    }

    /// Releases every unused segment, unless graphs may use the memory. Returns the bytes that became free.
    pub fn empty_cache(&self) -> Result<u64, Error> {
        self.inner().empty_pool(&self.state)
    }

    /// Returns the statistics of the pool.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let heaps = self.inner().heaps_of(&self.state);
        let sum = |counted| heaps.iter().map(|heap| heap.counters.now(Row::All, counted)).sum();
        PoolStats {
            allocations: sum(Counted::Allocations),
            allocated_bytes: sum(Counted::AllocatedBytes),
            segments: sum(Counted::Segments),
            reserved_bytes: sum(Counted::ReservedBytes),
        }
    }

    /// Returns what is allocated in the pool, in the order of addresses.
    #[must_use]
    pub fn live_allocations(&self) -> Vec<u64> {
        let heaps = self.inner().heaps_of(&self.state);
        let of_heap = |heap: &Arc<Heap<D>>| {
            let state = heap.state.lock();
            let blocks = state.blocks.iter().filter(|(_, block)| block.state == BlockState::Allocated);
            blocks.map(|(_, block)| block.address).collect::<Vec<u64>>()
        };
        let mut live: Vec<u64> = heaps.iter().flat_map(of_heap).collect();
        live.sort_unstable();
        live
    }

    /// Returns whether exactly `addresses` are allocated in the pool, in any order.
    #[must_use]
    pub fn check_live_allocations(&self, addresses: &[u64]) -> bool {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted == self.live_allocations()
    }
}

impl<D: Device> Drop for Pool<D> {
    fn drop(&mut self) {
        let origin = &self.inner().shared.origin;
        if origin.is_inherited() {
            origin.keep(&self.state);
        } else {
            self.inner().release_pool(&self.state);
        }
    }
}

impl<D: Device> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("id", &self.id()).field("allocator", &self.allocator).finish_non_exhaustive()
    }
}

/// A guard: while it lives, requests of its thread are routed to a pool.
#[derive(Debug)]
#[must_use = "the pool is left when the guard is dropped"]
pub struct PoolGuard<'a, D: Device = AnyDevice> {
    ticket: u64,
    /// The stream, so that no other owner gets it while its requests are routed.
    _stream: Option<Stream<D>>,
    /// The pool has a user meanwhile. A thread leaves the pools that it entered, so the guard is not `Send`.
    _of_thread: PhantomData<(&'a Pool<D>, *const ())>,
}

impl<D: Device> Drop for PoolGuard<'_, D> {
    fn drop(&mut self) {
        route::leave(self.ticket);
    }
}

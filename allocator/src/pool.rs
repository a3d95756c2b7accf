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
//!     let led = allocator.allocate(1 << 20, &stream)?; // on this thread and stream: from the pool
//! }
//! let outside = allocator.allocate(1 << 20, &stream)?;
//! assert_eq!(pool.stats().allocations, 1);
//! # drop((direct, outside));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A pool lives as long as it has users: owners, guards or graphs. Then its unused segments go back to the device.
//! Segments with live allocations go back when those are freed. Until then a caller may open the pool again by its
//! name.

mod capture;
mod checkpoint;
mod id;
pub(crate) mod launches;
mod operations;
mod options;
mod problem;
mod registry;
pub(crate) mod route;
pub(crate) mod state;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::allocation::Allocation;
use crate::allocator::Allocator;
use crate::error::Error;
use crate::stream::Stream;
use state::PoolState;

pub use capture::{Capture, Graph};
pub use checkpoint::{Checkpoint, Restored};
pub use id::PoolId;
pub use options::PoolOptions;
pub use problem::PoolProblem;
pub(crate) use registry::Pools;
pub use route::Filter;

/// One user of a pool; dropped, it releases the pool.
#[derive(Debug)]
pub struct Pool<D: Device> {
    allocator: Allocator<D>,
    core: Arc<PoolState>,
}

/// What a pool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Blocks that callers hold.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes held from the device or from the pool's source.
    pub reserved_bytes: u64,
}

impl<D: Device> Allocator<D> {
    /// Makes a pool.
    #[must_use]
    pub fn create_pool(&self) -> Pool<D> {
        self.create_named(PoolId::new)
    }

    /// Makes a pool with a new name, and skips names that are already in use.
    fn create_named(&self, name: impl Fn() -> PoolId) -> Pool<D> {
        loop {
            let core = PoolState::new(name(), None, false, false);
            if self.is_inherited() {
                // All calls of this pool fail, as those of the allocator do.
                return Pool { allocator: self.clone(), core: Arc::new(core) };
            }
            if let Ok(core) = self.inner().pools.add(core) {
                return Pool { allocator: self.clone(), core };
            }
        }
    }

    /// Makes a pool as `options` say.
    pub fn create_pool_with(&self, options: PoolOptions) -> Result<Pool<D>, Error> {
        self.inner().shared.origin.check()?;
        if let Some(id) = options.id {
            self.inner().forget_lifeless(id);
        }
        let (source, tag) = (options.source, options.tag);
        let core = loop {
            let id = options.id.unwrap_or_else(PoolId::new);
            let (no_split, use_on_oom) = (options.no_split, options.use_on_oom);
            let mut core = PoolState::new(id, source.clone(), no_split, use_on_oom);
            core.tag.clone_from(&tag);
            core.whole_segments = options.whole_segments;
            match self.inner().pools.add(core) {
                // A caller already uses this name, so the next one is tried.
                Err(_) if options.id.is_none() => {}
                added => break added?,
            }
        };
        if let Some(source) = &core.source {
            source.started(self.device_info().ordinal.0 + 1);
        }
        Ok(Pool { allocator: self.clone(), core })
    }

    /// Becomes one more user of a pool. One that was released may be opened as long as anything lives in it.
    pub fn open_pool(&self, id: PoolId) -> Result<Pool<D>, Error> {
        self.inner().shared.origin.check()?;
        self.inner().forget_lifeless(id);
        Ok(Pool { allocator: self.clone(), core: self.inner().pools.open(id)? })
    }

    /// Becomes one more user of every pool with a tag.
    pub(crate) fn pools_tagged(&self, tag: &str) -> Result<Vec<Pool<D>>, Error> {
        self.inner().shared.origin.check()?;
        let ids = self.inner().pools.tagged(tag);
        if tag.is_empty() || ids.is_empty() {
            return Err(PoolProblem::NoTag.of(PoolId::DEFAULT));
        }
        ids.into_iter().map(|id| self.open_pool(id)).collect()
    }

    /// Routes requests of every thread to a pool, and counts as its user, until
    /// [`end_allocate_to_pool`](Self::end_allocate_to_pool).
    pub fn begin_allocate_to_pool(&self, id: PoolId, filter: Filter) -> Result<(), Error> {
        self.inner().shared.origin.check()?;
        self.inner().begin_allocate_to_pool(filter, id)
    }

    /// Leads no more requests to a pool, but for what threads have entered.
    pub fn end_allocate_to_pool(&self, id: PoolId) -> Result<(), Error> {
        self.inner().shared.origin.check()?;
        self.inner().end_allocate_to_pool(id)
    }
}

impl<D: Device> Pool<D> {
    /// The pool's name.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.core.id
    }

    /// How many users it has.
    #[must_use]
    pub fn use_count(&self) -> u64 {
        self.core.uses.load(Relaxed)
    }

    pub(crate) const fn core(&self) -> &Arc<PoolState> {
        &self.core
    }

    /// The allocator it belongs to.
    #[must_use]
    pub const fn allocator(&self) -> &Allocator<D> {
        &self.allocator
    }

    /// Pins the memory of the pool until its last user is gone, as a capture does. No segment goes back, and no chunk
    /// moves. It is for graphs that the caller captures without this crate.
    pub fn keep(&self) {
        let _ = self.core.keep();
    }

    /// Records that graphs launched without this crate may use the memory of the pool, in any stream of the allocator.
    ///
    /// When the last user is gone, the memory serves other requests only after the work queued in those streams.
    pub fn mark_external_graph_use(&self) {
        self.allocator.inner().mark_external_graph_use(&self.core);
    }

    /// Lets its free blocks serve other requests before those fail, or not.
    pub fn set_use_on_oom(&self, on: bool) {
        self.core.set_use_on_oom(on);
    }

    /// Splits no block from now on, or does; segments that hold several blocks already are not changed.
    pub fn set_no_split(&self, on: bool) {
        self.core.set_no_split(on);
        for heap in self.allocator.inner().heaps_of(self.id()) {
            heap.set_no_split(on);
        }
    }

    /// Allocates `bytes` bytes from the pool for work in `stream`.
    pub fn allocate(&self, bytes: u64, stream: &Stream<D>) -> Result<Allocation<D>, Error> {
        let heap = self.allocator.inner().heap_in(&self.core, stream)?;
        self.allocator.allocate_from(bytes, heap)
    }

    /// Leads this thread's requests for `stream` to the pool while the guard lives. The pool entered last serves.
    pub fn enter(&self, stream: &Stream<D>) -> Result<PoolGuard<'_, D>, Error> {
        self.allocator.inner().shared.origin.check()?;
        self.allocator.inner().heap_in(&self.core, stream)?;
        Ok(self.enter_for(Some(stream)))
    }

    /// Leads this thread's requests for every stream to the pool while the guard lives.
    #[must_use = "the pool is left when the guard is dropped"]
    pub fn enter_all(&self) -> PoolGuard<'_, D> {
        self.enter_for(None)
    }

    fn enter_for(&self, stream: Option<&Stream<D>>) -> PoolGuard<'_, D> {
        if let Some(source) = &self.core.source
            && !self.allocator.is_inherited()
        {
            source.began(self.allocator.device_info().ordinal, self.core.id.pair());
        }
        let allocator = self.allocator.inner().identity();
        let ticket = route::enter(allocator, stream.map(Stream::handle), Arc::clone(&self.core));
        PoolGuard { pool: self, ticket, of_thread: route::OfThread::default() }
    }

    /// Gives every unused segment of the pool back; the bytes that came free. While graphs may use its memory, none
    /// does.
    pub fn empty_cache(&self) -> Result<u64, Error> {
        self.allocator.inner().shared.origin.check()?;
        let bytes = self.allocator.inner().empty_pool(&self.core)?;
        if let Some(source) = &self.core.source {
            source.emptied();
        }
        Ok(bytes)
    }

    /// What the pool holds.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.allocator.inner().pool_stats(&self.core)
    }

    /// Whether exactly `addresses` are allocated in the pool, in whatever order.
    #[must_use]
    pub fn check_live_allocations(&self, addresses: &[u64]) -> bool {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted == self.allocator.inner().live_in(&self.core)
    }
}

impl<D: Device> Drop for Pool<D> {
    fn drop(&mut self) {
        if self.allocator.is_inherited() {
            self.allocator.inner().shared.origin.keep(&self.core);
            return;
        }
        self.allocator.inner().release_pool(&self.core);
    }
}

/// While it lives, requests of its thread are led to a pool.
#[must_use = "the pool is left when the guard is dropped"]
pub struct PoolGuard<'a, D: Device> {
    pool: &'a Pool<D>,
    ticket: u64,
    of_thread: route::OfThread,
}

impl<D: Device> Drop for PoolGuard<'_, D> {
    fn drop(&mut self) {
        let _ = self.of_thread;
        route::leave(self.ticket);
        let Pool { allocator, core } = self.pool;
        if let Some(source) = &core.source
            && !allocator.is_inherited()
        {
            source.ended(allocator.device_info().ordinal, core.id.pair());
        }
    }
}

impl<D: Device> fmt::Debug for PoolGuard<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolGuard").field(&self.pool.core.id).finish()
    }
}

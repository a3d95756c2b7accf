//! Eviction: pools give up their memory under pressure, and get it back when they are used.
//!
//! A program whose layers, adapters or models do not all fit gives each of them an evictable pool. Before it queues work
//! on the memory of a pool, it takes a guard. While the guard lives, the pool is awake and stays on the device.
//!
//! ```
//! use cachette::evict::Priority;
//! use cachette::{Allocator, Backends, PoolOptions};
//!
//! let allocator = Allocator::with_config(Backends::open("host")?, &"memory_limit:64MiB".parse()?);
//! let stream = allocator.create_stream()?;
//! let layers: Result<Vec<_>, cachette::Error> = (0..3).map(|_| {
//!     let pool = allocator.create_pool_with(PoolOptions::new().evictable(Priority::default()))?;
//!     let weights = pool.allocate(32 << 20, &stream)?; // the third evicts the first
//!     Ok((pool, weights))
//! }).collect();
//! for (pool, weights) in &layers? {
//!     let _here = pool.make_resident()?; // wakes it, and evicts another one if there is too little memory
//!     // … work that uses `weights` …
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A request that would fail, and a pool that lacks memory to wake, evict pools without guards: those of the lowest
//! [`Priority`] first, of these the least recently resident, and as many as needed. An evicted pool sleeps, as after
//! [`Pool::sleep`]. Its contents are kept in host memory; with a [reload](crate::PoolOptions::reload) callback they are
//! dropped, and the callback writes them again.
//!
//! An eviction waits for the work that is queued in every stream of the allocator. So work that was queued while a guard
//! lived has ended before its pool is evicted. With `never_block` no request evicts. Pools that cannot sleep now are
//! passed over: their stream is captured, other processes have their memory open, or the host has no room.

#![forbid(unsafe_code)]

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use cachette_hal::{AnyDevice, Device};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::Error;
pub use crate::pool::Priority;
use crate::pool::pool_state::PoolState;
use crate::pool::{Pool, PoolId};
use crate::sleep::Contents;

/// A guard: while it lives, its pool is awake and is not evicted. It counts as a user of the pool.
#[derive(Debug)]
#[must_use = "the pool may be evicted when the guard is dropped"]
pub struct Resident<D: Device = AnyDevice> {
    pool: Pool<D>,
}

impl<D: Device> Pool<D> {
    /// Wakes the pool if it sleeps, and keeps it on the device while the guard lives.
    ///
    /// If there is too little memory, the allocator evicts other pools. Contents that were dropped are written again by
    /// the pool's [reload](crate::PoolOptions::reload) callback, before any thread gets a guard. After a failure the
    /// pool sleeps, or its contents are still missing, and the next call tries again.
    pub fn make_resident(&self) -> Result<Resident<D>, Error> {
        self.allocator().inner().shared.origin.check()?;
        let pool = self.allocator().open_pool(self.id())?;
        pool.state.guards.fetch_add(1, Relaxed);
        // From here on no eviction of the pool begins, and a failure ends the guard.
        let resident = Resident { pool };
        // This waits for an eviction that has begun.
        resident.pool.wake()?;
        resident.pool.state.reload()?;
        Ok(resident)
    }
}

impl<D: Device> Resident<D> {
    /// The pool.
    #[must_use]
    pub const fn pool(&self) -> &Pool<D> {
        &self.pool
    }
}

impl<D: Device> Drop for Resident<D> {
    fn drop(&mut self) {
        let state = &self.pool.state;
        state.last_resident.store(now(), Relaxed);
        // Release: an eviction that finds no guard sees what this thread has done before.
        state.guards.fetch_sub(1, Release);
    }
}

impl<D: Device> Allocator<D> {
    /// Evicts pools without guards until they have released `bytes`, or none is left. Returns the released bytes.
    ///
    /// Requests that lack memory do this themselves. It is for programs that give memory to others in time.
    pub fn evict(&self, bytes: u64) -> Result<u64, Error> {
        self.inner().shared.origin.check()?;
        Ok(self.inner().evict(PoolId::DEFAULT, None, || bytes))
    }

    /// The bytes of evictable pools that are awake and have no guard.
    #[must_use]
    pub fn evictable_bytes(&self) -> u64 {
        self.inner().evictable_bytes()
    }
}

impl<D: Device> AllocatorState<D> {
    pub(crate) fn evictable_bytes(&self) -> u64 {
        self.pools.select(|state| self.gains_from(state)).iter().map(|state| self.reserved_in(state)).sum()
    }

    fn reserved_in(&self, state: &PoolState) -> u64 {
        self.heaps_of(state).iter().map(|heap| heap.reserved()).sum()
    }

    /// Whether an eviction may take the pool, and gains memory by it. Only true for certain under the pool's turn.
    fn gains_from(&self, state: &PoolState) -> bool {
        state.may_be_evicted() && (state.options.reload.is_some() || !self.shared.device.info().integrated)
    }

    /// Evicts pools other than `own` until they have released `shortage` bytes, or none is left. Returns what they have
    /// released. With `below` it evicts only pools of a lower priority.
    ///
    /// The caller holds no lock. An eviction waits for the device, and takes the locks of the pool's heaps.
    pub(crate) fn evict(&self, own: PoolId, below: Option<Priority>, shortage: impl FnOnce() -> u64) -> u64 {
        let is_lower = |state: &PoolState| below.is_none_or(|below| state.options.priority < Some(below));
        let mut pools = self.pools.select(|state| state.id != own && is_lower(state) && self.gains_from(state));
        if pools.is_empty() {
            return 0;
        }
        let bytes = shortage();
        pools.sort_by_key(|state| (state.options.priority, state.last_resident.load(Relaxed)));
        let mut released = 0;
        for state in pools {
            if released >= bytes {
                break;
            }
            // A pool that cannot sleep now, for whatever reason, is passed over. It has lost nothing.
            released += self.evict_pool(&state).unwrap_or(0);
        }
        released
    }

    fn evict_pool(&self, state: &PoolState) -> Result<u64, Error> {
        // Other requests wait for the memory instead of failing.
        let release = self.shared.in_flight.release();
        // A thread that already turns a pool must not wait for the turn of another one.
        let turn = state.try_turn();
        let evicted = match turn {
            // A pool without memory stays awake for its first requests.
            Some(_turn) if self.gains_from(state) && self.reserved_in(state) > 0 => {
                let contents = if state.options.reload.is_some() { Contents::Discard } else { Contents::Keep };
                self.sleep_in_turn(state, contents, &mut |_| {}).map(|slept| slept.released)
            }
            _ => Ok(0),
        };
        match evicted {
            Ok(bytes) if bytes > 0 => {
                self.shared.totals.evictions.fetch_add(1, Relaxed);
            }
            _ => release.cancel(),
        }
        evicted
    }

    /// What a request for `bytes` lacks at the device or within the limit.
    pub(crate) fn shortage(&self, bytes: u64) -> u64 {
        let free = self.shared.free_memory().unwrap_or(u64::MAX);
        bytes.saturating_sub(free.min(self.shared.room(bytes)))
    }
}

impl PoolState {
    /// Whether an eviction may take the pool. Only true for certain under the pool's turn.
    fn may_be_evicted(&self) -> bool {
        self.options.priority.is_some() && self.guards.load(Acquire) == 0 && !self.is_asleep()
    }

    /// Whether the pool could be evicted if it had no guard.
    pub(crate) fn is_guarded(&self) -> bool {
        self.options.priority.is_some() && self.guards.load(Relaxed) > 0
    }

    /// Writes contents again that were dropped. One thread does it, and the others wait.
    fn reload(&self) -> Result<(), Error> {
        let Some(reload) = &self.options.reload else { return Ok(()) };
        let _turn = self.turn()?;
        if self.is_lost.load(Relaxed) {
            reload.call(self.id).map_err(|error| Error::PoolCallback { pool: self.id, error })?;
            self.is_lost.store(false, Relaxed);
        }
        Ok(())
    }
}

/// A later time than at any earlier call.
fn now() -> u64 {
    /// Relaxed: only the order of the numbers of one pool after another matters.
    static NOW: AtomicU64 = AtomicU64::new(1);
    NOW.fetch_add(1, Relaxed)
}

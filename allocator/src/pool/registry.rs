//! The pools of one allocator, by id.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::state::{PoolEntry, PoolState};
use super::{PoolId, PoolProblem};
use crate::error::Error;
use crate::source::SourceEvent;
use crate::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<PoolTable>);

#[derive(Debug, Default)]
struct PoolTable {
    pools: HashMap<PoolId, Arc<PoolState>>,
    /// Empty heaps that removed pools left behind, by number.
    heaps: Vec<u32>,
}

impl Pools {
    pub(super) fn add(&self, state: PoolState) -> Result<Arc<PoolState>, Error> {
        let id = state.id;
        match self.0.lock().pools.entry(id) {
            Entry::Vacant(free) if id != PoolId::DEFAULT => Ok(Arc::clone(free.insert(Arc::new(state)))),
            _ => Err(PoolProblem::Exists.of(id)),
        }
    }

    /// Adds a user to the pool `id`. A released pool that still exists is opened again.
    pub(super) fn open(&self, id: PoolId) -> Result<Arc<PoolState>, Error> {
        let table = self.0.lock();
        let state = table.pools.get(&id).ok_or(PoolProblem::Unknown.of(id))?;
        if state.is_left() {
            state.end_keep();
        }
        state.uses.fetch_add(1, Relaxed);
        Ok(Arc::clone(state))
    }

    /// Returns the pools for which `is_wanted` holds, in order of id.
    pub(super) fn select(&self, is_wanted: impl Fn(&PoolState) -> bool) -> Vec<Arc<PoolState>> {
        let mut pools: Vec<_> = self.0.lock().pools.values().filter(|state| is_wanted(state)).map(Arc::clone).collect();
        pools.sort_unstable_by_key(|state| state.id);
        pools
    }

    /// Removes a user. Returns whether it was the last.
    pub(super) fn release(&self, state: &PoolState) -> bool {
        let _table = self.0.lock();
        state.uses.fetch_sub(1, Relaxed) == 1
    }

    /// Passes an event to the sources of all pools.
    pub(crate) fn notify(&self, event: SourceEvent) {
        self.select(|_| true).iter().for_each(|state| state.notify(event));
    }

    pub(crate) fn released(&self) -> Vec<Arc<PoolState>> {
        self.select(|state| !state.is_used())
    }

    /// Removes every pool without users and entries that `is_empty`. Its heaps become available to other pools.
    pub(crate) fn forget(&self, is_empty: impl Fn(&PoolState) -> Option<Vec<u32>>) {
        // A pool may hold the last reference to its source, which must not be dropped under this lock.
        let mut forgotten = Vec::new();
        let PoolTable { pools, heaps } = &mut *self.0.lock();
        pools.retain(|_, state| {
            let kept = state.is_used() || state.is_entered();
            let Some(empty) = (!kept).then(|| is_empty(state)).flatten() else { return true };
            forgotten.push(Arc::clone(state));
            heaps.extend(empty);
            false
        });
    }

    /// Finds an empty heap that a removed pool left behind and that `fits`.
    pub(crate) fn idle_heap(&self, fits: impl Fn(u32) -> bool) -> Option<u32> {
        let heaps = &mut self.0.lock().heaps;
        let index = heaps.iter().position(|number| fits(*number))?;
        Some(heaps.swap_remove(index))
    }

    /// Returns the pools whose free blocks serve requests of other pools before those fail, by id.
    pub(crate) fn on_oom(&self) -> Vec<PoolEntry> {
        let table = self.0.lock();
        let lending = table.pools.values().filter(|state| state.use_on_oom.load(Relaxed));
        let mut entries: Vec<_> = lending.map(PoolEntry::new).collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        entries
    }
}

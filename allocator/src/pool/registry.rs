//! The pools of one allocator, by id.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::pool_state::{PoolEntry, PoolState};
use super::{PoolId, PoolProblem};
use crate::error::Error;
use crate::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<PoolTable>);

#[derive(Debug, Default)]
struct PoolTable {
    pools: HashMap<PoolId, Arc<PoolState>>,
    /// The pools without users.
    left: BTreeSet<PoolId>,
    /// The pool without users that was examined last.
    examined: PoolId,
    /// Empty heaps that removed pools left behind: their numbers, by the number of their stream state.
    heaps: HashMap<u64, Vec<u32>>,
}

/// An empty heap that a removed pool left behind: the number of its stream state, and its own.
pub(crate) type IdleHeap = (u64, u32);

impl PoolTable {
    /// Removes a pool without users and entries that `is_empty`. Its heaps become available to other pools.
    fn forget(&mut self, id: PoolId, is_empty: impl Fn(&PoolState) -> Option<Vec<IdleHeap>>) -> Option<Arc<PoolState>> {
        let state = self.pools.get(&id).filter(|state| !state.is_used() && state.entered.load(Relaxed) == 0)?;
        for (stream, number) in is_empty(state)? {
            self.heaps.entry(stream).or_default().push(number);
        }
        self.left.remove(&id);
        self.pools.remove(&id)
    }
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
        let PoolTable { pools, left, .. } = &mut *self.0.lock();
        let state = pools.get(&id).ok_or(PoolProblem::Unknown.of(id))?;
        if state.is_abandoned() {
            state.end_keep();
        }
        if state.uses.fetch_add(1, Relaxed) == 0 {
            left.remove(&id);
        }
        Ok(Arc::clone(state))
    }

    /// Returns the pools for which `is_wanted` holds, in order of id.
    pub(crate) fn select(&self, is_wanted: impl Fn(&PoolState) -> bool) -> Vec<Arc<PoolState>> {
        let mut pools: Vec<_> = self.0.lock().pools.values().filter(|state| is_wanted(state)).map(Arc::clone).collect();
        pools.sort_unstable_by_key(|state| state.id);
        pools
    }

    /// Removes a user. Returns whether it was the last.
    pub(super) fn release(&self, state: &PoolState) -> bool {
        let mut table = self.0.lock();
        let last = state.uses.fetch_sub(1, Relaxed) == 1;
        if last {
            table.left.insert(state.id);
        }
        last
    }

    /// Returns the pool `id` if it has no users.
    pub(crate) fn released_as(&self, id: PoolId) -> Option<Arc<PoolState>> {
        self.0.lock().pools.get(&id).filter(|state| !state.is_used()).map(Arc::clone)
    }

    /// Removes the pool `id`, and `others` more pools without users, if they have no entries and are empty. The others
    /// are examined in turn, so that each release of a pool costs the same.
    pub(crate) fn forget(&self, id: PoolId, others: usize, is_empty: impl Fn(&PoolState) -> Option<Vec<IdleHeap>>) {
        // A pool may hold the last reference to its source, which must not be dropped under this lock.
        let mut forgotten = Vec::new();
        let table = &mut *self.0.lock();
        forgotten.extend(table.forget(id, &is_empty));
        for _ in 0..others.min(table.left.len()) {
            let after = (Bound::Excluded(table.examined), Bound::Unbounded);
            let Some(next) = table.left.range(after).next().or_else(|| table.left.first()).copied() else { break };
            table.examined = next;
            forgotten.extend(table.forget(next, &is_empty));
        }
    }

    /// Finds an empty heap of a stream state that a removed pool left behind and that `fits`.
    pub(crate) fn idle_heap(&self, stream: u64, fits: impl Fn(u32) -> bool) -> Option<u32> {
        let heaps = &mut self.0.lock().heaps;
        let of_stream = heaps.get_mut(&stream)?;
        let index = of_stream.iter().rposition(|number| fits(*number))?;
        Some(of_stream.swap_remove(index))
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

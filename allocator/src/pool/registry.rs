//! The pools of one allocator, by name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::PoolState;
use super::{PoolId, PoolProblem};
use crate::error::Error;
use crate::source::Source;

/// The pools of one allocator, by name.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    book: Mutex<PoolTable>,
}

#[derive(Debug, Default)]
struct PoolTable {
    pools: HashMap<PoolId, Arc<PoolState>>,
    /// Empty heaps that pools left behind, by number.
    heaps: Vec<u32>,
}

impl Pools {
    /// Adds a pool; its name must be new.
    pub(super) fn add(&self, core: PoolState) -> Result<Arc<PoolState>, Error> {
        let id = core.id;
        match self.lock().pools.entry(id) {
            Entry::Vacant(free) if id != PoolId::DEFAULT => Ok(Arc::clone(free.insert(Arc::new(core)))),
            _ => Err(PoolProblem::Exists.of(id)),
        }
    }

    /// Adds a user to the pool called `id`; one that was released and is not gone yet is open again.
    pub(super) fn open(&self, id: PoolId) -> Result<Arc<PoolState>, Error> {
        let book = self.lock();
        let core = book.pools.get(&id).ok_or(PoolProblem::Unknown.of(id))?;
        core.uses.fetch_add(1, Relaxed);
        Ok(Arc::clone(core))
    }

    /// The pools with a tag, by name.
    pub(super) fn tagged(&self, tag: &str) -> Vec<PoolId> {
        let book = self.lock();
        let tagged = book.pools.values().filter(|core| core.tag == tag);
        let mut ids: Vec<PoolId> = tagged.map(|core| core.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Takes a user away; whether it was the last.
    pub(super) fn release(&self, core: &PoolState) -> bool {
        let _book = self.lock();
        core.uses.fetch_sub(1, Relaxed) == 1
    }

    /// The sources of all pools.
    pub(crate) fn sources(&self) -> Vec<Arc<dyn Source>> {
        let book = self.lock();
        let sources = book.pools.values().filter_map(|core| core.source.as_ref());
        sources.map(Arc::clone).collect()
    }

    /// The pools in the registry that have no users.
    pub(crate) fn released(&self) -> Vec<Arc<PoolState>> {
        let book = self.lock();
        let released = book.pools.values().filter(|core| !core.is_used());
        released.map(Arc::clone).collect()
    }

    /// Forgets every pool that has no user, that no thread is inside, and that `is_empty`; its heaps go to other pools.
    pub(crate) fn forget(&self, is_empty: impl Fn(&PoolState) -> Option<Vec<u32>>) {
        // A pool may be the last to hold its source, whose end is not this lock's affair.
        let mut gone = Vec::new();
        let PoolTable { pools, heaps } = &mut *self.lock();
        pools.retain(|_, core| {
            let kept = core.is_used() || core.is_entered();
            let empty = if kept { None } else { is_empty(core) };
            let stays = empty.is_none();
            if !stays {
                gone.push(Arc::clone(core));
            }
            heaps.extend(empty.into_iter().flatten());
            stays
        });
    }

    /// An empty heap that a pool left behind and that `fits`.
    pub(crate) fn idle_heap(&self, fits: impl Fn(u32) -> bool) -> Option<u32> {
        let heaps = &mut self.lock().heaps;
        let index = heaps.iter().position(|number| fits(*number))?;
        Some(heaps.swap_remove(index))
    }

    /// The pools whose free blocks serve other requests before those fail, by name.
    pub(crate) fn on_oom(&self) -> Vec<Arc<PoolState>> {
        let book = self.lock();
        let mut pools: Vec<_> = book.pools.values().filter(|core| core.serves_on_oom()).map(Arc::clone).collect();
        pools.sort_by_key(|core| core.id);
        pools
    }

    fn lock(&self) -> MutexGuard<'_, PoolTable> {
        // Every change is one step, so a panic leaves the book sound.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What an allocator does for pools that fall asleep and wake.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, Device, ErrorKind};

use super::{Contents, Progress, Slept, Slumber};
use crate::allocator::Inner;
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::pool::core::PoolCore;
use crate::pool::{PoolId, PoolProblem};

impl<D: Device> Inner<D> {
    /// Takes the memory of a pool away, and keeps its addresses.
    pub(super) fn put_to_sleep(
        &self,
        core: &PoolCore,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Slept, Error> {
        self.shared.origin.check()?;
        let _turn = core.turn();
        if core.is_asleep() {
            return Ok(Slept::default());
        }
        // A capture of another pool may be under way, which must not be broken.
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        self.check_sleepiness(core)?;
        self.drain(core)?;
        if !core.keeps() {
            for heap in self.heaps_of(core.id) {
                heap.release_where(|_| true)?;
            }
        }
        core.set_asleep(true);
        let slept = self.fall_asleep(core, contents, progress);
        if slept.is_err() && !self.slumbers().contains_key(&core.id) {
            self.let_serve(core);
        }
        slept
    }

    /// The pool takes no requests any more.
    fn fall_asleep(
        &self,
        core: &PoolCore,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Slept, Error> {
        let heaps = self.heaps_of(core.id);
        for heap in &heaps {
            heap.set_asleep(true);
        }
        // Whoever makes a heap larger at this moment finishes first.
        let _growth: Vec<_> = heaps.iter().map(|heap| heap.grow_alone()).collect();
        self.check_sleepiness(core)?;
        self.drain(core)?;
        for fence in heaps.iter().flat_map(|heap| heap.stale_fences()) {
            fence.wait()?;
        }
        for heap in &heaps {
            heap.unmap_stale();
        }
        let slumber = Slumber::plan(&self.shared, &heaps, contents, core.keeps(), &self.store);
        let mut slumber = slumber.ok_or(PoolProblem::NoHostMemory.of(core.id))?;
        if let Err(error) = slumber.send_away(&self.store, progress) {
            if slumber.bring_back(&self.store, &mut |_| {}).is_ok() {
                slumber.end(&self.store);
            } else {
                self.slumbers().insert(core.id, slumber);
            }
            return Err(error.into());
        }
        let slept = Slept {
            released: slumber.away(),
            saved: slumber.saved(),
        };
        self.slumbers().insert(core.id, slumber);
        Ok(slept)
    }

    /// Gets memory for a pool again; its bytes.
    pub(super) fn wake_up(
        &self,
        core: &PoolCore,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, Error> {
        self.shared.origin.check()?;
        let _turn = core.turn();
        if !core.is_asleep() {
            return Ok(0);
        }
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        let slumber = self.slumbers().remove(&core.id);
        let mut bytes = 0;
        if let Some(mut slumber) = slumber {
            slumber.forget_freed();
            bytes = slumber.away();
            let woken = self.make_room(bytes).and_then(|()| {
                let woken = slumber.bring_back(&self.store, progress);
                woken.map_err(|error| (error, bytes))
            });
            if let Err((error, bytes)) = woken {
                self.slumbers().insert(core.id, slumber);
                return Err(match error.kind() {
                    ErrorKind::OutOfMemory => PoolProblem::NoMemory { bytes }.of(core.id),
                    _ => error.into(),
                });
            }
            slumber.end(&self.store);
        }
        self.let_serve(core);
        Ok(bytes)
    }

    /// Whether the limit leaves room for `bytes`.
    fn make_room(&self, bytes: u64) -> Result<(), (hal::Error, u64)> {
        let reserved = self.shared.totals.reserved.load(Relaxed);
        if reserved.saturating_add(bytes) > self.shared.settings.limit.load(Relaxed) {
            return Err((hal::Error::new(ErrorKind::OutOfMemory, "wake"), bytes));
        }
        Ok(())
    }

    /// Lets a pool serve requests again.
    fn let_serve(&self, core: &PoolCore) {
        core.set_asleep(false);
        for heap in self.heaps_of(core.id) {
            heap.set_asleep(false);
        }
    }

    /// Why a pool cannot sleep now.
    fn check_sleepiness(&self, core: &PoolCore) -> Result<(), Error> {
        for heap in self.heaps_of(core.id) {
            if heap.elastic().is_none() && heap.reserved() > 0 {
                return Err(PoolProblem::NotElastic.of(core.id));
            }
            if heap.is_offering() {
                return Err(PoolProblem::Offered.of(core.id));
            }
            if heap.lane().is_capturing() {
                return Err(PoolProblem::Captured.of(core.id));
            }
        }
        Ok(())
    }

    /// Waits for everything that was queued in a stream of the allocator, and for the graphs of a pool.
    fn drain(&self, core: &PoolCore) -> Result<(), Error> {
        if !self.wait_for_launches(core)? {
            return Err(PoolProblem::Captured.of(core.id));
        }
        let mut done = Vec::new();
        for heap in self.heaps.all() {
            let lane = heap.lane();
            // What is captured does not run before it is launched.
            if done.contains(&lane.number()) || lane.is_capturing() {
                continue;
            }
            done.push(lane.number());
            Fence::record(lane)?.wait()?;
        }
        for heap in self.heaps_of(core.id) {
            heap.tend()?;
        }
        Ok(())
    }

    /// Forgets what was freed while its pool slept; a pool of which nothing is left is awake.
    pub(crate) fn forget_freed_asleep(&self, core: &PoolCore) {
        let _turn = core.turn();
        if !core.is_asleep() {
            return;
        }
        let heaps = self.heaps_of(core.id);
        for heap in &heaps {
            heap.forget_spares();
        }
        if heaps.iter().all(|heap| heap.slept() == 0) {
            // Out of the lock first: it may hold much host memory.
            let slumber = self.slumbers().remove(&core.id);
            if let Some(mut slumber) = slumber {
                slumber.forget_freed();
                if slumber.is_asleep() {
                    self.slumbers().insert(core.id, slumber);
                    return;
                }
                slumber.end(&self.store);
            }
            self.let_serve(core);
        }
    }

    fn slumbers(&self) -> MutexGuard<'_, HashMap<PoolId, Slumber<D>>> {
        self.slumbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device> Inner<D> {
    /// Whether a heap takes no requests because its pool sleeps.
    pub(crate) fn check_awake(heap: &Arc<Heap<D>>) -> Result<(), Error> {
        if !heap.is_asleep() {
            return Ok(());
        }
        match heap.pool() {
            Some(pool) if pool.is_asleep() => Err(PoolProblem::Asleep.of(pool.id)),
            // It was made while its pool woke.
            _ => {
                heap.set_asleep(false);
                Ok(())
            }
        }
    }
}

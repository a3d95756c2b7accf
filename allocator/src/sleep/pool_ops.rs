//! The operations of an allocator that let pools sleep and wake.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{Device, ErrorKind};

use crate::error::Error;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::pool::state::PoolState;
use crate::pool::{PoolId, PoolProblem};
use crate::sleep::{Contents, OffloadState, Progress, SleepStats};
use crate::state::AllocatorState;

impl<D: Device> AllocatorState<D> {
    /// Takes the memory of a pool away, and keeps its addresses.
    pub(super) fn put_to_sleep(
        &self,
        core: &PoolState,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SleepStats, Error> {
        self.shared.origin.check()?;
        let _turn = core.turn()?;
        if core.is_asleep() {
            return Ok(SleepStats::default());
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
        if slept.is_err() && !self.is_anything_away(core) {
            self.let_serve(core);
        }
        slept
    }

    /// The pool takes no requests any more.
    fn fall_asleep(
        &self,
        core: &PoolState,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SleepStats, Error> {
        let heaps = self.heaps_of(core.id);
        for heap in &heaps {
            heap.set_asleep(true);
        }
        // A request that makes a heap larger at this moment finishes first; the next one sees that the pool sleeps.
        for heap in &heaps {
            drop(heap.lock_growth());
        }
        // So does a thread that moves chunks to another heap or to the device.
        for heap in &heaps {
            heap.wait_for_moves();
        }
        self.check_sleepiness(core)?;
        self.drain(core)?;
        // Of streams that are captured by now too, which the drain left out.
        let fences = |heap: &Arc<Heap<D>>| [heap.all_fences(), heap.unmap_fences()].concat();
        for fence in heaps.iter().flat_map(fences) {
            fence.wait()?;
        }
        for heap in &heaps {
            // Addresses that stay mapped keep their memory, and cannot be released.
            heap.try_to_unmap_pending().1?;
        }
        let offload = OffloadState::plan(&self.shared, &heaps, contents, core.keeps(), &self.store);
        let offload = offload.ok_or(PoolProblem::NoHostMemory.of(core.id))?;
        // It stays there whatever happens, a panic of `progress` included, until nothing of the pool is away.
        let offload = Arc::new(Mutex::new(offload));
        self.offloads().insert(core.id, Arc::clone(&offload));
        let mut offload = unpoisoned(&offload);
        if let Err(error) = offload.send_away(&self.store, progress) {
            // What cannot be undone now, waking undoes.
            let _ = offload.bring_back(&self.store, &mut |_| {});
            return Err(error.into());
        }
        Ok(SleepStats { released: offload.redirect(), saved: offload.saved() })
    }

    /// Gets memory for a pool again; its bytes.
    pub(super) fn wake_up(&self, core: &PoolState, progress: &mut dyn FnMut(Progress)) -> Result<u64, Error> {
        self.shared.origin.check()?;
        let _turn = core.turn()?;
        if !core.is_asleep() {
            return Ok(0);
        }
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        for heap in self.heaps_of(core.id) {
            heap.process_events()?;
        }
        self.forget_freed(core);
        let mut bytes = 0;
        if let Some(offload) = self.offload(core) {
            let mut offload = unpoisoned(&offload);
            bytes = offload.redirect();
            if let Err(error) = offload.bring_back(&self.store, progress) {
                return Err(match error.kind() {
                    ErrorKind::OutOfMemory => PoolProblem::NoMemory { bytes }.of(core.id),
                    _ => error.into(),
                });
            }
        }
        self.let_serve(core);
        Ok(bytes)
    }

    /// Lets a pool serve requests again, of which nothing is away.
    fn let_serve(&self, core: &PoolState) {
        let offload = self.offloads().remove(&core.id);
        if let Some(offload) = offload {
            unpoisoned(&offload).end(&self.store);
        }
        core.set_asleep(false);
        for heap in self.heaps_of(core.id) {
            heap.set_asleep(false);
        }
    }

    /// Why a pool cannot sleep now.
    fn check_sleepiness(&self, core: &PoolState) -> Result<(), Error> {
        for heap in self.heaps_of(core.id) {
            if heap.elastic().is_none() && heap.reserved() > 0 {
                return Err(PoolProblem::NotElastic.of(core.id));
            }
            if heap.is_exporting() {
                return Err(PoolProblem::Offered.of(core.id));
            }
            if heap.stream_state().ask_capturing()? || heap.is_used_by_a_capture()? {
                return Err(PoolProblem::Captured.of(core.id));
            }
        }
        Ok(())
    }

    /// Waits for everything that was queued in a stream of the allocator, and for the graphs of a pool.
    fn drain(&self, core: &PoolState) -> Result<(), Error> {
        if !self.wait_for_launches(core)? {
            return Err(PoolProblem::Captured.of(core.id));
        }
        let mut done = Vec::new();
        for heap in self.heaps.all() {
            let stream_state = heap.stream_state();
            // What is captured does not run before it is launched.
            if done.contains(&stream_state.number()) || stream_state.ask_capturing()? {
                continue;
            }
            done.push(stream_state.number());
            Fence::record(stream_state)?.wait()?;
        }
        for heap in self.heaps_of(core.id) {
            heap.process_events()?;
        }
        Ok(())
    }

    /// Forgets what was freed while its pool slept; a pool of which nothing is left is awake.
    pub(crate) fn forget_freed_asleep(&self, core: &PoolState) {
        // A progress callback may call this; a later call then forgets the freed blocks.
        let Ok(_turn) = core.turn() else { return };
        if !core.is_asleep() {
            return;
        }
        self.forget_freed(core);
        if !self.is_anything_away(core) {
            self.let_serve(core);
        }
    }

    /// Whether any memory or address of a pool is away, or may still be copied.
    fn is_anything_away(&self, core: &PoolState) -> bool {
        let offload = self.offload(core);
        offload.is_some_and(|offload| unpoisoned(&offload).is_asleep())
    }

    /// Forgets the chunks and contents of a pool that were freed while it slept, unless graphs may use them.
    fn forget_freed(&self, core: &PoolState) {
        if core.gives_back() {
            for heap in self.heaps_of(core.id) {
                heap.forget_spares();
            }
        }
        if let Some(offload) = self.offload(core) {
            let whole = core.keeps();
            unpoisoned(&offload).forget_freed(whole);
        }
    }

    /// The sleep of a pool.
    fn offload(&self, core: &PoolState) -> Option<Arc<Mutex<OffloadState<D>>>> {
        self.offloads().get(&core.id).map(Arc::clone)
    }

    fn offloads(&self) -> MutexGuard<'_, HashMap<PoolId, Arc<Mutex<OffloadState<D>>>>> {
        unpoisoned(&self.offloads)
    }
}

/// Locks what is sound after a panic too: every chunk of a sleep knows how far it is.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Device> AllocatorState<D> {
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

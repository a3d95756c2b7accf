//! The operations that put pools to sleep and wake them.

use std::collections::HashSet;
use std::sync::Arc;

use cachette_hal::{Device, ErrorKind};

use crate::allocator::allocator_state::AllocatorState;
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::pool::PoolProblem;
use crate::pool::pool_state::PoolState;
use crate::sleep::{Contents, OffloadState, Progress, SleepStats};
use crate::sync::Mutex;

impl<D: Device> AllocatorState<D> {
    pub(super) fn put_to_sleep(
        &self,
        state: &PoolState,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SleepStats, Error> {
        let _turn = state.turn()?;
        if state.is_asleep() {
            return Ok(SleepStats::default());
        }
        let _relaxed = self.shared.relax_capture();
        self.check_can_sleep(state)?;
        self.drain(state)?;
        if !state.keeps() {
            self.heaps_of(state).iter().try_for_each(|heap| heap.release_idle().map(drop))?;
        }
        state.set_asleep(true);
        let slept = self.fall_asleep(state, contents, progress);
        if slept.is_err() {
            self.serve_unless_away(state);
        }
        slept
    }

    /// Puts a pool to sleep that no longer accepts requests.
    fn fall_asleep(
        &self,
        state: &PoolState,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SleepStats, Error> {
        let heaps = self.heaps_of(state);
        for heap in &heaps {
            heap.set_asleep(true);
        }
        // A request that adds memory to a heap at this moment finishes first; the next one sees that the pool sleeps.
        // The same holds for a thread that moves chunks to another heap or to the device.
        for heap in &heaps {
            drop(heap.growth.lock());
            drop(heap.elastic.as_ref().map(|elastic| elastic.moves.write()));
        }
        self.check_can_sleep(state)?;
        self.drain(state)?;
        // These include streams that are captured by now, which the drain left out.
        let mut fences = heaps.iter().flat_map(|heap| [heap.all_fences(), heap.unmap_fences()].concat());
        fences.try_for_each(|fence| fence.wait())?;
        // Addresses that stay mapped keep their memory, and cannot be released.
        heaps.iter().try_for_each(|heap| heap.try_to_unmap_pending().1)?;
        let offload = OffloadState::plan(&self.shared, &heaps, contents, state.keeps(), &self.store);
        // The state stays in the table, even if `progress` panics, until the pool has all its memory again.
        let offload = Arc::new(Mutex::new(offload.ok_or(PoolProblem::NoHostMemory.of(state.id))?));
        self.offloads.lock().insert(state.id, Arc::clone(&offload));
        let mut offload = offload.lock();
        if let Err(error) = offload.offload(&self.store, progress) {
            // If this fails too, a later wake undoes the rest.
            let _ = offload.restore(&self.store, &mut |_| {});
            return Err(error.into());
        }
        Ok(SleepStats { released: offload.offloaded_bytes(), saved: offload.saved() })
    }

    /// Restores the memory of a pool. Returns its bytes.
    pub(super) fn wake_up(&self, state: &PoolState, progress: &mut dyn FnMut(Progress)) -> Result<u64, Error> {
        let _turn = state.turn()?;
        if !state.is_asleep() {
            return Ok(0);
        }
        let _relaxed = self.shared.relax_capture();
        self.heaps_of(state).iter().try_for_each(|heap| heap.process_events())?;
        self.forget_freed(state);
        let mut bytes = 0;
        if let Some(offload) = self.offload(state) {
            let mut offload = offload.lock();
            bytes = offload.offloaded_bytes();
            if let Err(error) = offload.restore(&self.store, progress) {
                return Err(match error.kind() {
                    ErrorKind::OutOfMemory => PoolProblem::NoMemory { bytes }.of(state.id),
                    _ => error.into(),
                });
            }
        }
        self.serve_unless_away(state);
        Ok(bytes)
    }

    /// Lets a pool serve requests again, unless some memory or address is missing, or a copy may still run.
    fn serve_unless_away(&self, state: &PoolState) {
        if self.offload(state).is_some_and(|offload| offload.lock().is_asleep()) {
            return;
        }
        let offload = self.offloads.lock().remove(&state.id);
        if let Some(offload) = offload {
            offload.lock().end(&self.store);
        }
        state.set_asleep(false);
        for heap in self.heaps_of(state) {
            heap.set_asleep(false);
        }
    }

    fn check_can_sleep(&self, state: &PoolState) -> Result<(), Error> {
        for heap in self.heaps_of(state) {
            if heap.elastic.is_none() && heap.reserved() > 0 {
                return Err(PoolProblem::NotElastic.of(state.id));
            }
            if heap.is_exporting() {
                return Err(PoolProblem::Offered.of(state.id));
            }
            if let Some(address) = heap.lent() {
                return Err(PoolProblem::Lent { address }.of(state.id));
            }
            // The host cannot wait for the earlier work of a captured stream.
            for stream_state in std::iter::once(&heap.stream_state).chain(&heap.users()) {
                if stream_state.ask_capturing()? {
                    return Err(PoolProblem::Captured.of(state.id));
                }
            }
        }
        Ok(())
    }

    /// Waits for all queued work of the allocator, the graphs of a pool, and recorded uses of its memory in any stream.
    fn drain(&self, state: &PoolState) -> Result<(), Error> {
        if !self.settle_launches(state, true)? {
            return Err(PoolProblem::Captured.of(state.id));
        }
        let own = self.heaps.all().into_iter().map(|heap| Arc::clone(&heap.stream_state));
        let users = self.heaps_of(state).into_iter().flat_map(|heap| heap.users());
        let mut done = HashSet::new();
        for stream_state in &own.chain(users).collect::<Vec<_>>() {
            if !done.insert(stream_state.number) {
                continue;
            }
            // Captured work does not run before its graph is launched.
            if let Some(fence) = Fence::try_record(stream_state)? {
                fence.wait()?;
            }
        }
        // The work of a stream whose capture has begun since may still use the memory.
        self.check_can_sleep(state)?;
        Ok(self.heaps_of(state).iter().try_for_each(|heap| heap.process_events())?)
    }

    /// Removes the memory of a pool that was freed while it slept. A pool without memory wakes.
    pub(crate) fn forget_freed_asleep(&self, state: &PoolState) {
        // A progress callback may call this; a later call then removes the freed blocks.
        let Ok(_turn) = state.turn() else { return };
        if state.is_asleep() {
            self.forget_freed(state);
            self.serve_unless_away(state);
        }
    }

    /// Removes the chunks and contents of a pool that were freed while it slept, unless graphs may use them.
    fn forget_freed(&self, state: &PoolState) {
        if let Some(offload) = self.offload(state).filter(|_| !state.is_used()) {
            offload.lock().settle_unused();
        }
        if state.may_release() {
            for heap in self.heaps_of(state) {
                heap.forget_idle_chunks();
            }
        }
        if let Some(offload) = self.offload(state) {
            offload.lock().forget_freed(state.keeps());
        }
    }

    fn offload(&self, state: &PoolState) -> Option<Arc<Mutex<OffloadState<D>>>> {
        self.offloads.lock().get(&state.id).map(Arc::clone)
    }

    /// Fails if a heap accepts no requests because its pool sleeps.
    pub(crate) fn check_awake(heap: &Arc<Heap<D>>) -> Result<(), Error> {
        let pool = heap.pool();
        // A thread that puts the pool to sleep marks the pool first, and then the heap under this lock.
        let mut state = heap.state.lock();
        if state.asleep {
            pool.map_or(Ok(()), |pool| pool.check_awake())?;
            // The heap was created while its pool woke.
            state.asleep = false;
        }
        Ok(())
    }
}

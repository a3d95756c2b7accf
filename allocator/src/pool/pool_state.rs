//! The state of a pool, shared by its heaps.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, MutexGuard};
use std::thread::{self, ThreadId};

use cachette_hal::Device;

use super::{PoolId, PoolOptions, PoolProblem};
use crate::error::Error;
use crate::fence::Fence;
use crate::stream_state::StreamState;
use crate::sync::{Mutex, StreamTable};

/// The state of a pool. Heaps refer to it, and it refers to them by number.
///
/// All accesses to its atomics are relaxed: the registry's lock guards `uses`, and the switches are independent.
#[derive(Debug, Default)]
pub(crate) struct PoolState {
    pub(crate) id: PoolId,
    /// The heap of every stream that has allocated from the pool.
    pub(crate) streams: StreamTable,
    /// The heap of every stream with growable allocations in the pool.
    pub(crate) growables: StreamTable,
    /// The numbers of the pool's heaps, which `streams` has too.
    pub(crate) heaps: Mutex<BTreeSet<u32>>,
    /// What the pool was created with. The next two can change.
    pub(crate) options: PoolOptions,
    /// Whether blocks are never split, so that each segment has one block.
    pub(crate) no_split: AtomicBool,
    /// Whether free blocks serve requests of other pools before those fail.
    pub(super) use_on_oom: AtomicBool,
    /// Whether graphs may use the memory, so that no segment is released before the last user is gone.
    kept: AtomicU8,
    /// Whether graphs that use the memory may still run; changed under the lock of the launches.
    pub(super) running: AtomicBool,
    /// Whether memory must stay at its addresses because a checkpoint contains them.
    pub(crate) pinned: AtomicBool,
    asleep: AtomicBool,
    /// The number of calls that currently queue work on the memory. The pool goes to sleep when it is zero.
    queueing: Mutex<u64>,
    /// Notified when `queueing` becomes zero.
    queued: Condvar,
    /// Held by the thread that puts the pool to sleep or wakes it.
    turn: Mutex<()>,
    /// The thread that holds `turn`.
    turning: Mutex<Option<ThreadId>>,
    /// Whether contents were dropped that `reload` has not written again; changed under the turn.
    pub(crate) is_lost: AtomicBool,
    /// The guards that keep the pool on the device. An eviction reads it under the turn.
    pub(crate) guards: AtomicU64,
    /// When the last guard was dropped, in the order of all pools.
    pub(crate) last_resident: AtomicU64,
    /// The segments that the source has allocated: start and size. No two overlap.
    made: Mutex<BTreeMap<u64, u64>>,
    /// The number of owners, routes, captures and graphs.
    pub(super) uses: AtomicU64,
    /// The number of [`PoolEntry`]s. A guard of a thread can be forgotten, or outlive the last user.
    pub(super) entered: AtomicU64,
}

/// The values of `PoolState::kept`.
const RELEASED: u8 = 0;
const FOR_NOW: u8 = 1;
const KEPT: u8 = 2;

impl PoolState {
    pub(super) fn new(id: PoolId, options: PoolOptions) -> Self {
        let (no_split, use_on_oom) = (options.no_split.into(), options.use_on_oom.into());
        Self { options, no_split, use_on_oom, uses: AtomicU64::new(1), ..Self::forgotten(id) }
    }

    /// Returns a placeholder that owns the heaps of a removed pool, until another pool gets them.
    pub(super) fn forgotten(id: PoolId) -> Self {
        Self { id, ..Self::default() }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.uses.load(Relaxed) > 0
    }

    /// Records a segment of the source. If it overlaps another, returns the start of that one.
    pub(crate) fn note_made(&self, base: u64, bytes: u64) -> Result<(), u64> {
        let mut made = self.made.lock();
        let before = made.range(..base.saturating_add(bytes)).next_back();
        if let Some((other, length)) = before
            && other.saturating_add(*length) > base
        {
            return Err(*other);
        }
        made.insert(base, bytes);
        Ok(())
    }

    pub(crate) fn forget_made(&self, base: u64) {
        self.made.lock().remove(&base);
    }

    /// Records that this thread calls the source, while the guard lives.
    pub(crate) fn call_source(&self) -> SourceCall {
        // Nothing is recorded during thread exit.
        let _ = CALLED.try_with(|called| called.borrow_mut().push(ptr::from_ref(self).addr()));
        SourceCall(PhantomData)
    }

    pub(crate) fn is_in_source(&self) -> bool {
        CALLED.try_with(|called| called.borrow().contains(&ptr::from_ref(self).addr())).unwrap_or(false)
    }

    /// Returns whether unused segments may be released: the pool has no users, or its memory is not kept.
    pub(crate) fn may_release(&self) -> bool {
        !self.is_used() || !self.keeps()
    }

    /// Returns whether the pool has no users and no graph uses its memory any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.is_used() && !self.running.load(Relaxed)
    }

    pub(crate) fn keeps(&self) -> bool {
        self.options.registered || self.kept.load(Relaxed) != RELEASED
    }

    /// Returns whether the pool sleeps, or is about to.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Relaxed)
    }

    /// Marks the pool asleep, after a wait for calls that queue work on its memory, or awake.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        let mut queueing = self.queueing.lock();
        // Under the lock, so that each call either is waited for here or sees that the pool sleeps.
        self.asleep.store(asleep, Relaxed);
        while asleep && *queueing > 0 {
            queueing = Mutex::wait(&self.queued, queueing);
        }
    }

    pub(crate) fn check_awake(&self) -> Result<(), Error> {
        if self.is_asleep() { Err(PoolProblem::Asleep.of(self.id)) } else { Ok(()) }
    }

    /// Keeps the pool awake while the caller queues work on its memory. Fails if the pool sleeps.
    pub(crate) fn stay_awake(self: &Arc<Self>) -> Result<AwakeGuard, Error> {
        let mut queueing = self.queueing.lock();
        self.check_awake()?;
        *queueing += 1;
        Ok(AwakeGuard(Arc::clone(self)))
    }

    /// Locks the right to put the pool to sleep or wake it. Fails if this thread has it, as in a progress callback.
    pub(crate) fn turn(&self) -> Result<SleepTurn<'_>, Error> {
        let here = Some(thread::current().id());
        if *self.turning.lock() == here {
            return Err(PoolProblem::Changing.of(self.id));
        }
        Ok(self.begin_turn(self.turn.lock()))
    }

    /// Does the same without a wait: `None` if a thread has the turn.
    pub(crate) fn try_turn(&self) -> Option<SleepTurn<'_>> {
        Some(self.begin_turn(self.turn.try_lock()?))
    }

    fn begin_turn<'a>(&'a self, held: MutexGuard<'a, ()>) -> SleepTurn<'a> {
        *self.turning.lock() = Some(thread::current().id());
        SleepTurn { state: self, _held: held }
    }

    /// Returns whether the pool's heaps may be elastic, if those of the allocator are. Elastic memory is the device's and
    /// not a source's, and blocks that share a segment would break the promise of a pool that does not split.
    pub(crate) fn permits_elastic(&self) -> bool {
        !self.no_split.load(Relaxed) && self.options.source.is_none()
    }

    /// Returns whether unused memory may be released to the device or to other heaps. Callers hold the lock of the
    /// heap. A graph that was captured before has kept the pool, and one that is captured later does not get the
    /// memory.
    pub(crate) fn permits_release(&self) -> bool {
        !self.keeps() || self.is_abandoned()
    }

    /// Keeps every segment until the last user is gone.
    pub(super) fn keep(&self) {
        self.kept.store(KEPT, Relaxed);
    }

    /// Keeps every segment for a capture that is about to begin. A pool has at most one of these.
    pub(super) fn keep_for_now(&self) {
        let _ = self.kept.compare_exchange(RELEASED, FOR_NOW, Relaxed, Relaxed);
    }

    /// Ends `keep_for_now` after the capture has not begun, unless another thread keeps the memory.
    pub(super) fn end_keep_for_now(&self) {
        let _ = self.kept.compare_exchange(FOR_NOW, RELEASED, Relaxed, Relaxed);
    }

    /// Ends `keep`: no graph uses the memory any more.
    pub(crate) fn end_keep(&self) {
        self.kept.store(RELEASED, Relaxed);
    }
}

/// A thread or a request that uses the heaps of a pool. No other pool gets them meanwhile, even without users.
pub(crate) struct PoolEntry(Arc<PoolState>);

impl PoolEntry {
    /// Enters a pool. The caller knows that it has a user, or holds the lock of the pools.
    pub(super) fn new(pool: &Arc<PoolState>) -> Self {
        pool.entered.fetch_add(1, Relaxed);
        Self(Arc::clone(pool))
    }
}

impl Deref for PoolEntry {
    type Target = Arc<PoolState>;

    fn deref(&self) -> &Arc<PoolState> {
        &self.0
    }
}

impl Drop for PoolEntry {
    fn drop(&mut self) {
        self.0.entered.fetch_sub(1, Relaxed);
    }
}

/// A call that queues work on a pool's memory. The pool does not go to sleep before this is dropped.
pub(crate) struct AwakeGuard(Arc<PoolState>);

impl Drop for AwakeGuard {
    fn drop(&mut self) {
        let mut queueing = self.0.queueing.lock();
        *queueing -= 1;
        if *queueing == 0 {
            self.0.queued.notify_all();
        }
    }
}

/// The right to put a pool to sleep or wake it.
pub(crate) struct SleepTurn<'a> {
    state: &'a PoolState,
    _held: MutexGuard<'a, ()>,
}

impl Drop for SleepTurn<'_> {
    fn drop(&mut self) {
        *self.state.turning.lock() = None;
    }
}

/// The streams in which graphs of one pool were launched.
pub(crate) struct Launches<D: Device> {
    /// The number of the last launch, which no other has. It reveals a launch during a wait.
    pub(super) last: u64,
    pub(super) users: Vec<Arc<StreamState<D>>>,
    /// A fence after the last launch in each of these streams, once a poll has recorded them.
    pub(super) ends: Vec<Arc<Fence<D>>>,
}

thread_local! {
    /// The pools whose source this thread currently calls, innermost last: a source may allocate from another pool.
    static CALLED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct SourceCall(PhantomData<*const ()>);

impl Drop for SourceCall {
    fn drop(&mut self) {
        let _ = CALLED.try_with(|called| called.borrow_mut().pop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_overlaps_another_is_refused() {
        const MIB: u64 = 1 << 20;
        let pool = PoolState::forgotten(PoolId::new());
        let start = 0x7000_0000_0000 + 4096;
        assert_eq!(pool.note_made(start, 4 * MIB), Ok(()));
        for (base, bytes) in
            [(start, 2 * MIB), (start - MIB, 2 * MIB), (start + 3 * MIB, 2 * MIB), (start - MIB, 8 * MIB)]
        {
            assert_eq!(pool.note_made(base, bytes), Err(start), "{base:#x}");
        }
        assert_eq!(pool.note_made(start - 2 * MIB, 2 * MIB), Ok(()));
        assert_eq!(pool.note_made(start + 4 * MIB, 2 * MIB), Ok(()));
        pool.forget_made(start);
        assert_eq!(pool.note_made(start, 4 * MIB), Ok(()));
    }

    #[test]
    fn a_pool_falls_asleep_after_the_calls_that_queue_work() {
        let pool = Arc::new(PoolState::forgotten(PoolId::new()));
        let (first, second) = (pool.stay_awake().unwrap(), pool.stay_awake().unwrap());
        let (sender, slept) = std::sync::mpsc::channel();
        let sleeper = Arc::clone(&pool);
        thread::spawn(move || {
            sleeper.set_asleep(true);
            sender.send(()).unwrap();
        });
        while !pool.is_asleep() {
            thread::yield_now();
        }
        assert!(pool.stay_awake().is_err());
        drop(first);
        let soon = std::time::Duration::from_millis(50);
        assert!(slept.recv_timeout(soon).is_err(), "one call still queues work");
        drop(second);
        slept.recv_timeout(600 * soon).expect("the last call lets the pool sleep");
        pool.set_asleep(false);
        assert!(pool.stay_awake().is_ok());
    }
}

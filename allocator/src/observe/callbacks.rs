//! Callbacks: trackers of every event, observers of failed requests and of leaks, and helpers under memory pressure.

#![forbid(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cachette_hal::StreamRef;
pub use cachette_snapshot::TraceAction;

use crate::observe::leak::LeakedAllocation;
use crate::out_of_memory::OutOfMemory;
use crate::pool::PoolId;
use crate::sync::RwLock;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent {
    /// What happened.
    pub action: TraceAction,
    /// Where; for [`TraceAction::OutOfMemory`] the device's free bytes.
    pub address: u64,
    /// What the caller asked for, or the size of the segment; for [`TraceAction::Snapshot`] the bytes in use.
    pub bytes: u64,
    /// The stream of the block or segment.
    pub stream: StreamRef,
    /// The pool of the block or segment.
    pub pool: PoolId,
}

type TraceCallback = dyn Fn(&TraceEvent) + Send + Sync;
type OomCallback = dyn Fn(&OutOfMemory) + Send + Sync;
type LeakCallback = dyn Fn(&[LeakedAllocation]) + Send + Sync;
type FreeMemoryCallback = dyn Fn() -> bool + Send + Sync;

/// Those who watch an allocator. They are called on the thread of the request, with no lock held.
#[derive(Default)]
pub(crate) struct Callbacks {
    /// Whether there is any tracker; relaxed, since a tracker added now may miss what happens now.
    tracked: AtomicBool,
    trackers: RwLock<Vec<Arc<TraceCallback>>>,
    oom: RwLock<Vec<Arc<OomCallback>>>,
    relievers: RwLock<Vec<Arc<FreeMemoryCallback>>>,
    leaks: RwLock<Vec<Arc<LeakCallback>>>,
}

impl Callbacks {
    pub(crate) fn track(&self, tracker: Arc<TraceCallback>) {
        push(&self.trackers, tracker);
        self.tracked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn on_oom(&self, observer: Arc<OomCallback>) {
        push(&self.oom, observer);
    }

    pub(crate) fn on_pressure(&self, reliever: Arc<FreeMemoryCallback>) {
        push(&self.relievers, reliever);
    }

    pub(crate) fn on_leak(&self, observer: Arc<LeakCallback>) {
        push(&self.leaks, observer);
    }

    /// Whether events are worth making.
    pub(crate) fn is_tracked(&self) -> bool {
        self.tracked.load(Ordering::Relaxed)
    }

    /// Tells every tracker.
    pub(crate) fn event(&self, event: &TraceEvent) -> CallbackOutcome {
        let mut all = CallbackOutcome::default();
        for tracker in copy(&self.trackers) {
            let called = catch_unwind(AssertUnwindSafe(|| tracker(event)));
            all = all.and(CallbackOutcome(called.err()));
        }
        all
    }

    pub(crate) fn report_oom(&self, report: &OutOfMemory) {
        for observer in copy(&self.oom) {
            observer(report);
        }
    }

    pub(crate) fn report_leaks(&self, leaks: &[LeakedAllocation]) {
        for observer in copy(&self.leaks) {
            observer(leaks);
        }
    }

    /// Asks every helper to free memory; whether any of them did.
    pub(crate) fn run_free_memory_callbacks(&self) -> bool {
        copy(&self.relievers).iter().fold(false, |freed, reliever| reliever() | freed)
    }
}

/// What came of telling the trackers.
///
/// If one of them panicked, the panic continues when this value is dropped. So the allocator can first finish what it
/// began, and no block is lost.
#[derive(Debug, Default)]
pub(crate) struct CallbackOutcome(Option<Box<dyn Any + Send>>);

impl CallbackOutcome {
    /// Whether a tracker panicked.
    pub(crate) const fn is_panic(&self) -> bool {
        self.0.is_some()
    }

    /// Both outcomes; of two panics the first.
    pub(crate) fn and(mut self, mut other: Self) -> Self {
        Self(self.0.take().or(other.0.take()))
    }
}

impl Drop for CallbackOutcome {
    fn drop(&mut self) {
        if let Some(panic) = self.0.take()
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks")
            .field("trackers", &copy(&self.trackers).len())
            .field("oom", &copy(&self.oom).len())
            .field("relievers", &copy(&self.relievers).len())
            .field("leaks", &copy(&self.leaks).len())
            .finish_non_exhaustive()
    }
}

fn push<T: ?Sized>(list: &RwLock<Vec<Arc<T>>>, item: Arc<T>) {
    list.write().push(item);
}

/// The list as it is now; a callback may then add to it without a deadlock.
fn copy<T: ?Sized>(list: &RwLock<Vec<Arc<T>>>) -> Vec<Arc<T>> {
    list.read().clone()
}

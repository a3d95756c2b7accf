//! Callbacks: sinks of trace events, observers of failed requests, and free-memory callbacks.
//!
//! They are called on the thread of the request. No other stream waits meanwhile: no lock is held, except the one under
//! which a single request adds memory to the stream.

#![forbid(unsafe_code)]

pub use cachette_snapshot::TraceAction;

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use cachette_hal::StreamRef;

use crate::observe::history::aside;
use crate::out_of_memory::OutOfMemory;
use crate::pool::PoolId;
use crate::sync::RwLock;

/// One event of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The kind of event.
    pub action: TraceAction,
    /// The address; for [`TraceAction::OutOfMemory`] the device's free bytes.
    pub address: u64,
    /// The requested bytes, or the size of the segment; for [`TraceAction::Snapshot`] the bytes in use.
    pub bytes: u64,
    /// The stream of the block or segment.
    pub stream: StreamRef,
    /// The pool of the block or segment.
    pub pool: PoolId,
}

/// What an allocator does seldom and no event shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A request, or a call that empties the cache, waited for work of the device.
    Waited {
        /// How long it waited.
        time: Duration,
    },
    /// An address range has memory now, which other devices may access: a segment, chunks, or a pool that woke.
    Mapped {
        /// The first address.
        address: u64,
        /// The bytes.
        bytes: u64,
    },
    /// The memory is about to leave an address range. Registrations with network cards must end before the return.
    ///
    /// The allocator holds locks, so the observer must not call it.
    Unmapping {
        /// The first address.
        address: u64,
        /// The bytes.
        bytes: u64,
    },
    /// Other processes on the device are not asked for memory, and get none: their list cannot be read, or no socket can
    /// be made. It is said once.
    Alone {
        /// The failure.
        kind: std::io::ErrorKind,
    },
    /// A stream with elastic segments got a direct segment, because mapping memory was refused or would wait.
    DirectSegment {
        /// The size of the segment.
        bytes: u64,
    },
}

/// The bit of an action in a set of actions.
pub(crate) const fn bit(action: TraceAction) -> u16 {
    1 << action as u16
}

type TraceSink = dyn Fn(&TraceEvent) + Send + Sync;
type OomCallback = dyn Fn(&OutOfMemory) + Send + Sync;
type NoticeCallback = dyn Fn(&Notice) + Send + Sync;
type FreeMemoryCallback = dyn Fn() -> bool + Send + Sync;

thread_local! {
    /// The events that this thread tells the sinks later; `None` while it tells them at once.
    static POSTPONED: RefCell<Option<Vec<TraceEvent>>> = const { RefCell::new(None) };
}

#[derive(Default)]
pub(crate) struct Callbacks {
    /// The actions that any sink receives; relaxed, since a sink added now may miss what happens now.
    wanted: AtomicU16,
    /// The trackers, each with the actions that it receives.
    sinks: RwLock<Vec<(u16, Arc<TraceSink>)>>,
    pub(crate) oom: RwLock<Vec<Arc<OomCallback>>>,
    pub(crate) free_memory: RwLock<Vec<Arc<FreeMemoryCallback>>>,
    pub(crate) notices: RwLock<Vec<Arc<NoticeCallback>>>,
}

impl Callbacks {
    pub(crate) fn add_sink(&self, actions: u16, sink: Arc<TraceSink>) {
        self.sinks.write().push((actions, sink));
        self.wanted.fetch_or(actions, Relaxed);
    }

    #[inline]
    pub(crate) fn wants(&self, action: TraceAction) -> bool {
        self.wanted.load(Relaxed) & bit(action) != 0
    }

    /// Makes this thread keep its events until [`tell_postponed`](Self::tell_postponed).
    pub(crate) fn postpone() {
        // During thread exit the list is gone, and events are told at once.
        let _ = POSTPONED.try_with(|postponed| postponed.replace(Some(Vec::new())));
    }

    /// Calls the sinks for every event since [`postpone`](Self::postpone).
    pub(crate) fn tell_postponed(&self) -> CallbackOutcome {
        let events = POSTPONED.try_with(RefCell::take).ok().flatten().unwrap_or_default();
        events.iter().fold(CallbackOutcome::default(), |all, event| all.and(self.call_sinks(event)))
    }

    /// Calls every sink that receives the action, now or after the thread's turn.
    #[cold]
    pub(crate) fn event(&self, event: &TraceEvent) -> CallbackOutcome {
        let is_postponed = POSTPONED.try_with(|postponed| {
            let mut postponed = postponed.borrow_mut();
            postponed.as_mut().map(|events| events.push(*event)).is_some()
        });
        if is_postponed.unwrap_or(false) { CallbackOutcome::default() } else { self.call_sinks(event) }
    }

    fn call_sinks(&self, event: &TraceEvent) -> CallbackOutcome {
        let mut all = CallbackOutcome::default();
        for (_, sink) in copy(&self.sinks).iter().filter(|(actions, _)| actions & bit(event.action) != 0) {
            all = all.and(CallbackOutcome::of(|| sink(event)));
        }
        all
    }

    pub(crate) fn report_oom(&self, report: &OutOfMemory) {
        for observer in copy(&self.oom) {
            aside(|| observer(report));
        }
    }

    pub(crate) fn notice(&self, notice: Notice) {
        for observer in copy(&self.notices) {
            aside(|| observer(&notice));
        }
    }

    /// Waits for other streams. Observers learn how long.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = (!self.notices.read().is_empty()).then(Instant::now);
        let done = wait();
        if let Some(began) = began {
            self.notice(Notice::Waited { time: began.elapsed() });
        }
        done
    }

    /// Calls every free-memory callback. Returns whether any of them freed memory.
    pub(crate) fn run_free_memory_callbacks(&self) -> bool {
        copy(&self.free_memory).iter().fold(false, |freed, callback| aside(|| callback()) | freed)
    }
}

/// Copies the list, so that a callback can add to it without a deadlock.
fn copy<T: Clone>(list: &RwLock<Vec<T>>) -> Vec<T> {
    list.read().clone()
}

/// The result of a call of the sinks.
///
/// If one of them panicked, the panic continues at the drop. So what was begun is finished, and no block is lost.
#[derive(Debug, Default)]
pub(crate) struct CallbackOutcome(Option<Box<dyn Any + Send>>);

impl CallbackOutcome {
    /// Calls `act`, which may call sinks.
    pub(crate) fn of(act: impl FnOnce()) -> Self {
        Self(catch_unwind(AssertUnwindSafe(act)).err())
    }

    pub(crate) const fn is_panic(&self) -> bool {
        self.0.is_some()
    }

    /// Combines two outcomes; of two panics the first is kept.
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

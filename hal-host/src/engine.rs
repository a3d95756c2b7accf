//! Streams, events and graphs: queued, running and finished work.
//!
//! One lock guards all of it. Work runs outside of the lock: on one thread for each stream or, in stepped mode, on the
//! thread that requests a step.

mod capturing;
mod event;
mod execute;
mod graph;
mod in_flight;
pub(crate) mod machine;
mod nodes;
pub(crate) mod pool;
mod stepped;
mod stream;
mod threaded;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, MutexGuard};
use std::thread::JoinHandle;

use cachette_hal::{Call, ErrorKind, Guarded, Result};

use crate::checks::{check, error};
use crate::engine::machine::Machine;
use crate::random::SplitMix64;

use capturing::CaptureState;
use event::EventState;
use graph::GraphState;
use stream::StreamState;

pub(crate) use capturing::exchange_thread_mode;
pub use stepped::StepRecord;
pub(crate) use stream::StreamKey;
pub use work::{Hold, WorkKind};
pub(crate) use work::{Task, Work};

#[derive(Debug)]
pub(crate) struct Engine {
    state: Guarded<State>,
    /// Notified when work has finished or a hold was released.
    progress: Condvar,
    /// Held while a step is chosen and run, so that steps follow one another.
    turn: Guarded<()>,
    /// Worker threads that have not been joined.
    workers: Guarded<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// In order of key, so that a random choice can be replayed.
    streams: BTreeMap<StreamKey, StreamState>,
    events: HashMap<usize, EventState>,
    graphs: HashMap<usize, GraphState>,
    captures: HashMap<u64, CaptureState>,
    /// The source of choices in stepped mode; `None` if streams have threads.
    random: Option<SplitMix64>,
    log: Vec<StepRecord>,
    /// Polls since the last step that found their event pending.
    idle_polls: u32,
    stop: bool,
}

impl Engine {
    /// Creates an engine with only the default stream of every device.
    pub(crate) fn new(seed: Option<u64>, devices: usize) -> Self {
        let state = State {
            streams: (0..devices).map(|device| (StreamKey::default_of(device), StreamState::new(device))).collect(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            captures: HashMap::new(),
            random: seed.map(SplitMix64::new),
            log: Vec::new(),
            idle_polls: 0,
            stop: false,
        };
        Self {
            state: Guarded::new(state),
            progress: Condvar::new(),
            turn: Guarded::new(()),
            workers: Guarded::default(),
        }
    }
}

impl Machine {
    fn state(&self) -> MutexGuard<'_, State> {
        self.engine.state.lock()
    }

    /// Puts work at the end of a stream's queue.
    ///
    /// Work that cannot block runs at once if nothing precedes it, so that a stream with only such work needs no
    /// thread.
    fn enqueue(self: &Arc<Self>, call: Call, state: &mut State, key: StreamKey, work: Work) -> Result<()> {
        let threaded = state.random.is_none();
        let instant = threaded && work.is_instant(self.config.phantom, state);
        let stream = state.streams.get_mut(&key).ok_or(error(call, ErrorKind::InvalidHandle))?;
        if instant && stream.is_idle() {
            self.execute(stream.device, work);
            self.engine.progress.notify_all();
            return Ok(());
        }
        check(!threaded || self.start_worker(stream, key).is_ok(), call, ErrorKind::Refused)?;
        self.units[stream.device]
            .pending
            // Relaxed: a thread that waits reads the queues under the lock.
            .fetch_add(1, Ordering::Relaxed);
        stream.push(work, &self.config);
        Ok(())
    }

    /// Records that the running work of a stream has finished.
    fn finish(&self, state: &mut State, key: StreamKey) {
        if let Some(stream) = state.streams.get_mut(&key) {
            stream.finish();
            // Release: pairs with the acquire in `wait_idle`.
            self.units[stream.device].pending.fetch_sub(1, Ordering::Release);
        }
        self.engine.progress.notify_all();
    }

    /// Blocks the host until `done`; in stepped mode it runs steps until then.
    ///
    /// In stepped mode it fails if no work can run: only the caller could change that.
    fn block_until(&self, call: Call, done: impl Fn(&State) -> bool) -> Result<()> {
        let mut state = self.state();
        if state.random.is_none() {
            while !done(&state) && !state.stop {
                state = self.wait_progress(state);
            }
            return Ok(());
        }
        drop(state);
        loop {
            if done(&self.state()) {
                return Ok(());
            }
            // Another thread may have run the last step between the two checks.
            check(self.step().is_some() || done(&self.state()), call, ErrorKind::Other)?;
        }
    }

    /// Releases the lock until there is progress.
    fn wait_progress<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.engine.progress.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

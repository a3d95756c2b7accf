//! Runs work one step at a time, in an order that can be replayed.

use cachette_hal::{Ordinal, StreamRef};

use super::State;
use super::stream::StreamKey;
use super::work::WorkKind;
use crate::engine::machine::Machine;

/// One completed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StepRecord {
    /// Steps of the backend before this one.
    pub sequence: u64,
    /// The device whose stream ran.
    pub device: Ordinal,
    /// The stream, by its current or former handle.
    pub stream: StreamRef,
    /// The kind of work that ran.
    pub work: WorkKind,
}

/// The number of failed polls before the device runs a step by itself.
const POLLS_BEFORE_A_STEP: u32 = 32;

impl State {
    /// Draws one of the streams whose next piece of work can run.
    fn draw(&mut self) -> Option<StreamKey> {
        let ready = |key: &StreamKey| {
            self.streams.get(key).and_then(|stream| stream.head()).is_some_and(|work| work.is_ready(self))
        };
        let ready: Vec<_> = self.streams.keys().copied().filter(ready).collect();
        let random = self.random.as_mut().filter(|_| !ready.is_empty())?;
        Some(ready[random.below(ready.len())])
    }
}

impl Machine {
    /// Runs one piece of work; `None` if none can run, or streams have threads.
    pub(crate) fn step(&self) -> Option<StepRecord> {
        let _turn = self.engine.turn.lock();
        let mut state = self.state();
        let key = state.draw()?;
        let sequence = state.log.len() as u64;
        let stream = state.streams.get_mut(&key)?;
        let device = stream.device;
        let work = stream.begin()?;
        let record = StepRecord {
            sequence,
            device: self.units[device].info.ordinal,
            stream: key.stream(device),
            work: work.kind(),
        };
        state.log.push(record);
        state.idle_polls = 0;
        drop(state);
        self.execute(device, work);
        let mut state = self.state();
        self.finish(&mut state, key);
        let drained = |stream: &mut super::StreamState| stream.destroyed && stream.is_idle();
        if state.streams.get_mut(&key).is_some_and(drained) {
            state.streams.remove(&key);
        }
        Some(record)
    }

    /// Counts a poll that found its event pending.
    ///
    /// A host that keeps polling is waiting, so a step runs after some polls. A polling loop then ends on this device,
    /// as on one that runs by itself.
    pub(crate) fn polled_in_vain(&self) {
        let mut state = self.state();
        state.idle_polls += 1;
        if state.random.is_some() && state.idle_polls >= POLLS_BEFORE_A_STEP {
            drop(state);
            self.step();
        }
    }

    pub(crate) fn interleaving(&self) -> Vec<StepRecord> {
        self.state().log.clone()
    }
}

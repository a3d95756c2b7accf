//! The turn of the one request that plans and maps memory.
//!
//! Several at once would create memory for what the others return, and drivers are no faster with several. A sink of
//! trace events may wait for a thread that waits for its turn. So the events of a turn are told after its end.

#![forbid(unsafe_code)]

use std::sync::MutexGuard;

use crate::device_state::DeviceState;
use crate::observe::callbacks::{CallbackOutcome, Callbacks};

/// The turn of one request. Hits do not wait for it.
pub(crate) struct MappingTurn<'a> {
    /// `None` after the end.
    turn: Option<MutexGuard<'a, ()>>,
    callbacks: &'a Callbacks,
}

impl<'a> MappingTurn<'a> {
    /// Waits for the turn.
    pub(crate) fn begin<D: cachette_hal::Device>(shared: &'a DeviceState<D>) -> Self {
        let turn = Some(shared.chunks.turns.lock());
        Callbacks::postpone();
        Self { turn, callbacks: &shared.callbacks }
    }

    /// Ends the turn, and tells its events.
    pub(crate) fn end(mut self) -> CallbackOutcome {
        self.tell()
    }

    fn tell(&mut self) -> CallbackOutcome {
        match self.turn.take() {
            Some(turn) => {
                drop(turn);
                self.callbacks.tell_postponed()
            }
            None => CallbackOutcome::default(),
        }
    }
}

impl Drop for MappingTurn<'_> {
    fn drop(&mut self) {
        let _told = self.tell();
    }
}

//! Builds a trace, operation by operation.

use std::collections::HashMap;

use super::{Operation, Trace, TraceProblem};

/// A trace under construction.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) operations: Vec<Operation>,
    /// Slot and bytes of what is live, by the number that the source of the trace gives it.
    live: HashMap<u64, (u32, u64)>,
    /// Slots below `slots` that nothing is kept in.
    vacant: Vec<u32>,
    slots: u32,
    /// Our number of a stream by the source's.
    streams: HashMap<u64, u32>,
    requested: u64,
    peak_requested: u64,
}

impl Builder {
    pub(super) fn is_live(&self, id: u64) -> bool {
        self.live.contains_key(&id)
    }

    pub(super) fn allocate(&mut self, id: u64, bytes: u64, stream: u64) -> Result<(), TraceProblem> {
        if self.is_live(id) {
            return Err(TraceProblem::AlreadyLive(id));
        }
        let slot = self.vacant.pop().unwrap_or(self.slots);
        // Fewer than 2^32: the table of live allocations alone would be larger than any memory.
        self.slots = self.slots.max(slot + 1);
        self.live.insert(id, (slot, bytes));
        let sum = self.requested.checked_add(bytes);
        self.requested = sum.ok_or(TraceProblem::TooMuch)?;
        self.peak_requested = self.peak_requested.max(self.requested);
        let next = u32::try_from(self.streams.len()).map_err(|_| TraceProblem::TooMuch)?;
        let stream = *self.streams.entry(stream).or_insert(next);
        self.operations.push(Operation::Allocate { slot, stream, bytes });
        Ok(())
    }

    pub(super) fn free(&mut self, id: u64) -> Result<(), TraceProblem> {
        let (slot, bytes) = self.live.remove(&id).ok_or(TraceProblem::NotLive(id))?;
        self.vacant.push(slot);
        self.requested -= bytes;
        self.operations.push(Operation::Free { slot });
        Ok(())
    }

    pub(super) fn finish(self, name: String) -> Trace {
        Trace {
            name,
            operations: self.operations,
            slots: self.slots as usize,
            streams: self.streams.len(),
            peak_requested: self.peak_requested,
            recorded: None,
        }
    }
}

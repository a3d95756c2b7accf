//! Control and inspection of a device by tests, beyond the contract.

use cachette_hal::{Call, ErrorKind, Result, StreamRef};

use crate::device::HostDevice;
use crate::engine::{Hold, StepRecord};
use crate::space::Kind;

/// The number of live resources of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Allocations, from the driver and from its pool.
    pub allocations: usize,
    /// Streams, without the default one.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Handles of backing.
    pub backings: usize,
    /// Handles of backing that was created for network cards.
    pub rdma_backings: usize,
    /// Mappings of backing.
    pub mappings: usize,
    /// Reservations of addresses.
    pub reservations: usize,
    /// Ranges of page-locked host memory, allocated or registered.
    pub pinned: usize,
    /// Graphs.
    pub graphs: usize,
    /// Opened tokens.
    pub tokens: u64,
}

/// Failures on demand.
impl HostDevice {
    /// Makes the `nth` call of this kind from now fail once, before it has any effect; 1 is the next.
    pub fn fail_next(&self, call: Call, nth: u64, kind: ErrorKind) {
        self.unit().script.plan(Some(call), nth, kind);
    }

    /// Makes the `nth` call of any kind from now fail once, before it has any effect; 1 is the next.
    pub fn fail_nth_call(&self, nth: u64, kind: ErrorKind) {
        self.unit().script.plan(None, nth, kind);
    }

    /// Removes every planned failure.
    pub fn clear_failures(&self) {
        self.unit().script.clear();
    }

    /// Returns the number of calls of this kind so far, including failed ones.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.unit().script.calls(call)
    }

    /// Returns the number of calls of all kinds so far, including failed ones.
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        self.unit().script.total()
    }
}

/// Time on demand.
impl HostDevice {
    /// Holds the stream at its current end until the hold is released or dropped.
    pub fn hold(&self, stream: StreamRef) -> Result<Hold> {
        self.machine().hold(self.index, stream)
    }

    /// Runs one piece of work of any stream of the backend, drawn from the seed among those that can run. `None` if
    /// none can, or if streams have threads.
    #[must_use = "says whether anything ran"]
    pub fn step(&self) -> Option<StepRecord> {
        self.machine().step()
    }

    /// Runs steps until no work can run.
    pub fn run_until_idle(&self) {
        while self.step().is_some() {}
    }

    /// Every step of the backend so far, in order.
    #[must_use]
    pub fn interleaving(&self) -> Vec<StepRecord> {
        self.machine().interleaving()
    }
}

/// Inspection.
impl HostDevice {
    /// Bytes of physical memory in use.
    #[must_use]
    pub fn physical_bytes(&self) -> u64 {
        self.unit().physical.used()
    }

    /// Counts the live resources.
    #[must_use]
    pub fn live(&self) -> Live {
        let (machine, index) = (self.machine(), self.index);
        let mut live = Live {
            streams: machine.live_streams(index),
            events: machine.live_events(index),
            graphs: machine.live_graphs(index),
            ..Live::default()
        };
        let backings = self.unit().backings.lock();
        (live.backings, live.rdma_backings) =
            (backings.len(), backings.values().filter(|backing| backing.rdma).count());
        drop(backings);
        let space = machine.read_space();
        live.reservations = space.reservations_of(index);
        for (_, range) in space.ranges().filter(|(_, range)| range.owner == index) {
            match &range.kind {
                Kind::Direct(_) | Kind::Pooled { idle: false, .. } => live.allocations += 1,
                Kind::Pooled { idle: true, .. } => {}
                Kind::Mapping(_) => live.mappings += 1,
                Kind::Pinned { .. } | Kind::Registered => live.pinned += 1,
                Kind::Opened { count, .. } => live.tokens += count,
            }
        }
        live
    }
}

//! Pieces of work that a stream runs.

use std::fmt;
use std::sync::{Arc, Weak};

use cachette_hal::HostFunction;

use super::State;
use super::event::Marker;
use super::graph::GraphBody;
use crate::engine::machine::Machine;

/// Work that can run any number of times, and so can be captured.
///
/// Host memory is stored as an exposed address, since work crosses threads.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Fill { at: u64, byte: u8, bytes: u64 },
    Copy { to: u64, from: u64, bytes: u64 },
    Upload { to: u64, from: u64, bytes: u64 },
    Download { to: u64, from: u64, bytes: u64 },
    Launch(Arc<GraphBody>),
}

pub(crate) enum Work {
    /// Work that can also be captured.
    Task(Task),
    /// Marks that all work before it has finished.
    Record(Arc<Marker>),
    /// Waits for a mark, or for the newest mark of the event `follow` (a defect).
    Wait {
        marker: Arc<Marker>,
        /// The event whose later records also count.
        follow: Option<usize>,
    },
    HostCall(HostFunction),
    /// Waits for a [`Hold`].
    Hold(Arc<Marker>),
    /// Returns memory to the pool.
    Free {
        at: u64,
        ticket: u64,
    },
}

impl Work {
    pub(super) fn is_ready(&self, state: &State) -> bool {
        match self {
            Self::Wait { marker, follow } => match follow.and_then(|event| state.newest(event)) {
                Some(newest) => newest.is_done(),
                None => marker.is_done(),
            },
            Self::Hold(gate) => gate.is_done(),
            _ => true,
        }
    }

    /// Returns whether it is too short to need a separate thread.
    pub(super) fn is_instant(&self, phantom: bool, state: &State) -> bool {
        match self {
            Self::Record(_) => true,
            Self::Wait { .. } => self.is_ready(state),
            Self::Task(_) | Self::Free { .. } => phantom,
            Self::HostCall(_) | Self::Hold(_) => false,
        }
    }

    pub(super) const fn kind(&self) -> WorkKind {
        match self {
            Self::Task(Task::Fill { .. }) => WorkKind::Fill,
            Self::Task(Task::Copy { .. }) => WorkKind::Copy,
            Self::Task(Task::Upload { .. }) => WorkKind::Upload,
            Self::Task(Task::Download { .. }) => WorkKind::Download,
            Self::Task(Task::Launch(_)) => WorkKind::Launch,
            Self::Record(_) => WorkKind::Record,
            Self::Wait { .. } => WorkKind::Wait,
            Self::HostCall(_) => WorkKind::HostCall,
            Self::Hold(_) => WorkKind::Hold,
            Self::Free { .. } => WorkKind::Free,
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

/// The kind of work that a stream ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkKind {
    /// A fill.
    Fill,
    /// A copy within device memory.
    Copy,
    /// A copy from the host.
    Upload,
    /// A copy to the host.
    Download,
    /// A whole graph.
    Launch,
    /// The record of an event.
    Record,
    /// A wait for an event.
    Wait,
    /// A host function.
    HostCall,
    /// A hold that was released.
    Hold,
    /// A free in stream order.
    Free,
}

/// Holds a stream at a known point: later work in it does not run before this is dropped.
#[derive(Debug)]
#[must_use = "a hold that is dropped holds nothing"]
pub struct Hold {
    gate: Arc<Marker>,
    machine: Weak<Machine>,
}

impl Hold {
    /// Creates a closed hold, and the work that waits for it.
    pub(super) fn new(machine: &Arc<Machine>) -> (Self, Work) {
        let gate = Arc::<Marker>::default();
        let hold = Self { gate: Arc::clone(&gate), machine: Arc::downgrade(machine) };
        (hold, Work::Hold(gate))
    }

    /// Resumes the stream.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.gate.finish();
        if let Some(machine) = self.machine.upgrade() {
            machine.tell_progress();
        }
    }
}

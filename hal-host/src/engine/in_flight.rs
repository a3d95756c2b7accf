//! Memory used by unfinished work.

use super::work::{Task, Work};
use crate::engine::machine::Machine;

impl Task {
    /// Returns whether it accesses device memory of this range.
    fn touches(&self, at: u64, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        let meets = |start: u64, length: u64| start < end && at < start.saturating_add(length);
        match *self {
            Self::Fill { at, bytes, .. } => meets(at, bytes),
            Self::Copy { to, from, bytes } => meets(to, bytes) || meets(from, bytes),
            Self::Upload { to, bytes, .. } => meets(to, bytes),
            Self::Download { from, bytes, .. } => meets(from, bytes),
            Self::Launch(ref body) => body.tasks().any(|task| task.touches(at, bytes)),
        }
    }
}

impl Machine {
    /// Frees memory at once by `remove`. Raises a fault on every device whose unfinished work uses it.
    ///
    /// That work would otherwise access other memory at the same addresses.
    pub(crate) fn remove_at_once<T>(&self, at: u64, bytes: u64, remove: impl FnOnce() -> T) -> T {
        // Held until the memory is gone, so that no work is queued or begun in between.
        let state = self.state();
        for stream in state.streams.values() {
            if stream.in_flight().any(|task| task.touches(at, bytes)) {
                self.units[stream.device].raise_fault();
            }
        }
        remove()
    }
}

/// Returns the task of a piece of work, if it is one.
pub(super) const fn task_of(work: &Work) -> Option<&Task> {
    match work {
        Work::Task(task) => Some(task),
        _ => None,
    }
}

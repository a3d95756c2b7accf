//! Reads and writes memory by address, after a check of the device's rights.

use std::ptr;

use crate::defect::Defect;
use crate::engine::Task;
use crate::engine::machine::Machine;
use crate::mapping::{host_len, pointer};
use crate::space::{Need, Space};

impl Machine {
    /// Reads and writes memory. Returns `false`, without an access, if the device has no right.
    pub(crate) fn touch(&self, device: usize, task: &Task, space: &Space) -> bool {
        let may = |at, bytes, need| space.permits(device, at, bytes, need);
        let permitted = match *task {
            Task::Fill { at, bytes, .. } => may(at, bytes, Need::Write),
            Task::Copy { to, from, bytes } => may(to, bytes, Need::Write) && may(from, bytes, Need::Read),
            Task::Upload { to, bytes, .. } => may(to, bytes, Need::Write),
            Task::Download { from, bytes, .. } => may(from, bytes, Need::Read),
            Task::Launch(_) => true,
        };
        if !permitted || self.config.phantom {
            return permitted;
        }
        match *task {
            Task::Fill { at, byte, bytes } => {
                let missed = u64::from(self.lies(Defect::FillShort));
                // SAFETY: `permits` found the range mapped, and the table is locked against changes.
                unsafe { pointer::<u8>(at).write_bytes(byte, host_len(bytes.saturating_sub(missed))) };
            }
            Task::Copy { to, from, bytes } | Task::Upload { to, from, bytes } | Task::Download { to, from, bytes } => {
                // SAFETY: as above for device memory; promise 4 of the contract for host memory.
                unsafe { ptr::copy(pointer::<u8>(from), pointer(to), host_len(bytes)) };
            }
            Task::Launch(_) => {}
        }
        true
    }
}

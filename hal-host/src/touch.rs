//! Reads and writes memory by address, after a check of the device's rights.

use std::ptr;

use crate::defect::Defect;
use crate::engine::Task;
use crate::engine::machine::Machine;
use crate::mapping::host_len;
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
                // SAFETY: 1. `permits` found the range mapped, and the table is locked against changes.
                unsafe { fill(at, byte, bytes.saturating_sub(missed)) };
            }
            Task::Copy { to, from, bytes } | Task::Upload { to, from, bytes } | Task::Download { to, from, bytes } => {
                // SAFETY: 1. as above for device memory; promise 4 of the contract for host memory.
                unsafe { copy(to, from, bytes) };
            }
            Task::Launch(_) => {}
        }
        true
    }
}

/// Sets every byte.
///
/// # Safety
///
/// 1. All bytes are mapped and writable, and stay so during the call.
unsafe fn fill(at: u64, byte: u8, bytes: u64) {
    let at: *mut u8 = ptr::with_exposed_provenance_mut(host_len(at));
    // SAFETY: 1. by promise 1 of this function.
    unsafe { ptr::write_bytes(at, byte, host_len(bytes)) };
}

/// Copies; the ranges may overlap.
///
/// # Safety
///
/// 1. All bytes of both ranges are mapped, those of `to` writable, and stay so during the call.
unsafe fn copy(to: u64, from: u64, bytes: u64) {
    let to: *mut u8 = ptr::with_exposed_provenance_mut(host_len(to));
    let from: *const u8 = ptr::with_exposed_provenance(host_len(from));
    // SAFETY: 1. by promise 1 of this function.
    unsafe { ptr::copy(from, to, host_len(bytes)) };
}

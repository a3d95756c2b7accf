//! Reading and writing memory by address, with a check of the device's rights.

use std::ptr;

use crate::defect::Defect;
use crate::engine::Task;
use crate::machine::Machine;
use crate::mapping::host_len;
use crate::space::{Need, Space};

impl Machine {
    /// Reads and writes memory; `false`, without an access, if the device may not.
    pub(crate) fn touch(&self, device: usize, task: &Task, space: &Space) -> bool {
        let may = |at, bytes, need| space.permits(device, at, bytes, need);
        let real = !self.config.phantom;
        match *task {
            Task::Fill { at, byte, bytes } => {
                let permitted = may(at, bytes, Need::Write);
                let missed = u64::from(self.lies(Defect::FillShort));
                if permitted && real {
                    // SAFETY: 1. `permits` found it all mapped, and the table is locked against changes.
                    unsafe { fill(at, byte, bytes.saturating_sub(missed)) };
                }
                permitted
            }
            Task::Copy { to, from, bytes } => {
                let permitted = may(to, bytes, Need::Write) && may(from, bytes, Need::Read);
                if permitted && real {
                    // SAFETY: 1. `permits` found it all mapped, and the table is locked against changes.
                    unsafe { copy(to, from, bytes) };
                }
                permitted
            }
            Task::Upload { to, from, bytes } => {
                let permitted = may(to, bytes, Need::Write);
                if permitted && real {
                    // SAFETY: 1. as above for `to`; promise 4 of the contract for `from`.
                    unsafe { copy(to, from, bytes) };
                }
                permitted
            }
            Task::Download { to, from, bytes } => {
                let permitted = may(from, bytes, Need::Read);
                if permitted && real {
                    // SAFETY: 1. as above for `from`; promise 4 of the contract for `to`.
                    unsafe { copy(to, from, bytes) };
                }
                permitted
            }
            Task::Launch(_) => true,
        }
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

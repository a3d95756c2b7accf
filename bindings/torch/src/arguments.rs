//! Arguments in PyTorch's form.

use std::ffi::c_void;

use cachette::OutOfMemory;

use crate::error::{Error, MOST_ENTRIES};

/// The arguments of PyTorch's out-of-memory observers: the device, the requested bytes, its total bytes or the limit,
/// and its free bytes.
#[must_use]
pub fn observed(report: &OutOfMemory) -> (u32, u64, u64, u64) {
    let total = report.limit.or(report.total).unwrap_or(0);
    let free = report.free.unwrap_or(0);
    (report.device.0, report.segment, total, free)
}

/// The capacity of a history for `asked` events. PyTorch passes the largest number for no limit.
pub fn history_entries(asked: u64) -> Result<u64, Error> {
    const USUAL: u64 = 1_000_000;
    match asked {
        0..=MOST_ENTRIES => Ok(asked),
        _ if asked >= i64::MAX.cast_unsigned() => Ok(USUAL),
        _ => Err(Error::TooManyEntries { asked }),
    }
}

/// The user pointer of a callback. The caller keeps it valid while the callback may be called.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct User(pub *mut c_void);

// SAFETY: the pointer is not dereferenced here, and callers promise that any thread may call their functions.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

//! The heavy one of two barriers. With a light one, a fence of the compiler, it orders accesses of two threads as two
//! full barriers do.
//!
//! The heavy barrier interrupts every processor that runs a thread of this process. This replaces the full barrier that
//! the light side omits. It is Linux's `membarrier`; on a kernel without it no lock is biased.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

/// Returns whether the kernel supports the heavy barrier. The first call queries the kernel.
///
/// In a process with many threads the first call takes milliseconds, so it must not be on a fast path.
pub(crate) fn is_available() -> bool {
    static AGREED: OnceLock<bool> = OnceLock::new();
    *AGREED.get_or_init(|| {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    })
}

/// The expensive side, if [available](is_available): every thread of the process passes a full barrier.
pub(crate) fn heavy_barrier() {
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        // The process has blocked the system call. Without it no other thread can revoke a bias.
        eprintln!("cachette: membarrier is refused, although it was granted before");
        std::process::abort();
    }
}

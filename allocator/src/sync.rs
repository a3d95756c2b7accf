//! The atomics of the lock-free protocols, in one place: `tests/protocols.rs` compiles the same files over a
//! model checker's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Looks at a flag this often before another thread is let run.
const LOOKS: u32 = 64;

/// Lets time pass until `flag` seems to be clear, or long enough that it is worth trying.
pub(crate) fn wait_while(flag: &AtomicBool) {
    for _ in 0..LOOKS {
        if !flag.load(Ordering::Relaxed) {
            return;
        }
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

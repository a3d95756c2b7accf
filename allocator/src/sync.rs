//! The atomics of the lock-free protocols. `tests/protocols.rs` compiles the same files with the atomics of a model
//! checker.

pub(crate) mod asymmetric_fence;
pub(crate) mod biased_lock;
pub(crate) mod generation;
pub(crate) mod lock;
mod mutex;
pub(crate) mod owner_slot;
pub(crate) mod spin;
pub(crate) mod stream_map;
pub(crate) mod stream_table;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

pub(crate) use asymmetric_fence::{heavy_barrier, light_barrier};
pub(crate) use mutex::{Mutex, RwLock};

/// The longest pause is two to this power of the processor's own: some microseconds.
const LONGEST: u32 = 8;
/// From this round on the thread yields, since the holder of the lock may be waiting for a processor.
const YIELD_FROM: u32 = 10;

/// Repeats an attempt to take a lock until it succeeds, and waits twice as long before each.
///
/// The holder releases the lock within some tens of nanoseconds, and often takes it again at once. A long wait leaves
/// the lock and its cache lines to that thread for many turns. This gives a far higher throughput than alternation.
#[cold]
pub(crate) fn back_off_until(attempt: impl Fn() -> bool) {
    for round in 0.. {
        if round >= YIELD_FROM {
            std::thread::yield_now();
        }
        for _ in 0..1 << round.min(LONGEST) {
            std::hint::spin_loop();
        }
        if attempt() {
            return;
        }
    }
}

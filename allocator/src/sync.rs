//! The atomics of the lock-free protocols, in one place: `tests/protocols.rs` compiles the same files over a
//! model checker's.

pub(crate) mod asymmetric_fence;
pub(crate) mod biased_lock;
pub(crate) mod generation;
pub(crate) mod lock;
pub(crate) mod owner_slot;
pub(crate) mod spin;
pub(crate) mod stream_map;
pub(crate) mod stream_table;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

pub(crate) use asymmetric_fence::{heavy_barrier, light_barrier};

/// The longest pause is two to this power of the processor's own: some microseconds.
const LONGEST: u32 = 8;
/// From this round on another thread is let run, since it may be the one that holds the lock.
const YIELD_FROM: u32 = 10;

/// Lets time pass before the next try for a lock, twice as much as before the last.
///
/// The holder is done within some tens of nanoseconds and often comes back at once. Whoever waits long leaves it
/// the lock, and the cache lines behind it, for many turns: that makes far more of them than taking turns.
pub(crate) fn back_off(round: u32) {
    if round >= YIELD_FROM {
        std::thread::yield_now();
    }
    for _ in 0..1 << round.min(LONGEST) {
        std::hint::spin_loop();
    }
}

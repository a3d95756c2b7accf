//! Shared state of the threads of Cachette: the lock of a heap, and tables that are read without a lock.
//!
//! No file here depends on a device or a block. `tests/protocols.rs` compiles the protocols with the atomics of a model
//! checker, and tries every interleaving of a few threads.

mod asymmetric_fence;
mod biased_lock;
pub mod clock;
mod event_ring;
mod generation;
pub mod lock;
mod mutex;
mod owner_slot;
mod process;
mod spin;
mod stream_map;
mod stream_table;
pub mod thread;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::atomic::{compiler_fence, fence};

pub(crate) use asymmetric_fence::heavy_barrier;
pub use event_ring::{Ring, RingEntry, RingWriter};
pub use mutex::{Mutex, RwLock};
pub use process::{Forked, ProcessGuard};
pub use stream_table::StreamTable;

/// The longest pause is two to this power of the processor's own: some tens of microseconds.
const LONGEST: u32 = 10;
/// From this round on the thread yields, since the holder of the lock may be waiting for a processor.
const YIELD_FROM: u32 = 12;

/// The empty slots of a ring. The kernel provides the memory of many when it is first written.
pub(crate) fn zeroed(length: usize) -> Box<[event_ring::RingSlot]> {
    let words = Box::into_raw(vec![[0_u64; 8]; length].into_boxed_slice());
    // SAFETY: an atomic has the size and the alignment of its integer, and no other pointer to the memory is left.
    unsafe { Box::from_raw(words as *mut [event_ring::RingSlot]) }
}

/// Repeats an attempt to take a lock until it succeeds, and waits twice as long before each. The first wait has the
/// length of round `first`.
///
/// The holder releases the lock within some tens of nanoseconds, and often takes it again at once. A long wait leaves
/// the lock and its cache lines to that thread for many turns. This gives a far higher throughput than alternation.
#[cold]
pub(crate) fn back_off_until(first: u32, attempt: impl Fn() -> bool) {
    for round in first.. {
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

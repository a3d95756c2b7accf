//! The lock-free protocols under a model checker: every interleaving of a few threads.
//!
//! The files are those of the library, compiled over the model's atomics instead of the processor's.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

    /// The models try and do not wait: a model in which a thread may look for ever has no end.
    pub(crate) fn back_off(_round: u32) {
        unreachable!("no model waits");
    }
}

#[path = "../src/slots.rs"]
#[expect(dead_code, reason = "the model needs only a part of it")]
mod slots;
#[path = "../src/lock/spin.rs"]
#[expect(dead_code, reason = "the model needs only a part of it")]
mod spin;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use slots::Slots;
use spin::Spin;

/// Something only the holder of the lock may touch; the model reports any overlap.
struct Guarded {
    lock: Spin,
    value: UnsafeCell<u32>,
}

impl Guarded {
    /// Adds one if nobody holds the lock; whether it did.
    fn try_add_one(&self) -> bool {
        let taken = self.lock.try_take();
        if taken {
            self.value.with_mut(|value| {
                // SAFETY: the lock is held, and the model checks that nobody else is here.
                unsafe { *value += 1 };
            });
            self.lock.leave();
        }
        taken
    }
}

#[test]
fn the_lock_lets_one_thread_in_at_a_time_and_publishes_what_it_wrote() {
    loom::model(|| {
        let guarded = Arc::new(Guarded {
            lock: Spin::new(sync::AtomicBool::new(false)),
            value: UnsafeCell::new(0),
        });
        let others: Vec<_> = (0..2)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || {
                    u32::from(guarded.try_add_one()) + u32::from(guarded.try_add_one())
                })
            })
            .collect();
        let added: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
        // SAFETY: every other thread has ended.
        let total = guarded.value.with(|value| unsafe { *value });
        assert!(total == added && total >= 1, "{total} of {added}");
    });
}

#[test]
fn whoever_sees_a_stream_in_the_table_sees_its_heap() {
    loom::model(|| {
        let slots = Arc::new(Slots::new(1));
        let reader = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                for (key, value) in [(0x40, 7), (0x80, 8)] {
                    assert!(slots.get(key).is_none_or(|seen| seen == value));
                }
            })
        };
        assert!(slots.insert(0x40, 7));
        assert!(slots.insert(0x80, 8));
        reader.join().unwrap();
        assert_eq!((slots.get(0x40), slots.get(0x80)), (Some(7), Some(8)));
    });
}

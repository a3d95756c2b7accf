//! Checks the lock-free protocols with loom: every interleaving of a few threads.
//!
//! The files are those of the library, compiled with the atomics of loom instead of those of the processor.

#![expect(unreachable_pub, reason = "the files are those of the library")]

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The two barriers together act as a full barrier on either side. The model has only full barriers.
pub(crate) fn heavy_barrier() {
    fence(Ordering::SeqCst);
}

pub(crate) use fence as compiler_fence;

/// The atomics of the model cannot be made of zeroes.
pub(crate) fn zeroed(length: usize) -> Box<[event_ring::RingSlot]> {
    (0..length).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect()
}

/// The models only try the lock: a model in which a thread can spin without a bound does not terminate.
pub(crate) fn back_off_until(_first: u32, _attempt: impl Fn() -> bool) {
    unreachable!("no model waits");
}

#[path = "../src/biased_lock.rs"]
#[expect(dead_code, reason = "the model needs only a part of it")]
mod biased_lock;
#[path = "../src/event_ring.rs"]
#[expect(dead_code, reason = "the model needs only a part of it")]
mod event_ring;
#[path = "../src/spin.rs"]
mod spin;
#[path = "../src/stream_map.rs"]
#[expect(dead_code, reason = "the model needs only a part of it")]
mod stream_map;

use std::ptr;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use biased_lock::{Bias, BiasedLock, Contended, OwnerSlot};
use event_ring::{Ring, RingEntry, RingWriter};
use spin::Spin;
use stream_map::StreamMap;

/// A value that only the holder of the lock may access; the model reports concurrent accesses.
struct Guarded<L> {
    lock: L,
    value: UnsafeCell<u32>,
}

impl<L> Guarded<L> {
    fn new(lock: L) -> Self {
        let value = UnsafeCell::new(0);
        Self { lock, value }
    }

    /// Adds one. Only the holder of the lock may call it, and the model checks that.
    fn add_one(&self) {
        self.value.with_mut(|value| {
            // SAFETY: this thread holds the lock, and the model checks that no other thread has access.
            unsafe { *value += 1 };
        });
    }

    /// The value, once every other thread has ended.
    fn total(&self) -> u32 {
        // SAFETY: every other thread has ended, and the model checks that too.
        self.value.with(|value| unsafe { *value })
    }
}

impl Guarded<Spin> {
    /// Adds one if no thread holds the lock. Returns the number added.
    fn try_add_one(&self) -> u32 {
        let taken = self.lock.try_take();
        if taken {
            self.add_one();
            self.lock.leave();
        }
        u32::from(taken)
    }
}

impl Guarded<BiasedLock> {
    /// Adds one if no thread holds the lock, as the owner if `me` is the owner's slot. Returns the number added.
    fn try_add_one(&self, me: &'static OwnerSlot) -> u32 {
        let taken = self.lock.enter(me) || self.lock.try_take(Some(me));
        if taken {
            self.add_one();
            self.lock.leave();
        }
        u32::from(taken)
    }

    /// Does the same, and makes `me` the owner, even if another thread was the owner a moment ago.
    fn try_add_one_and_own(&self, me: &'static OwnerSlot) -> u32 {
        let rebias_threshold = &self.lock.contended.rebias_threshold;
        rebias_threshold.store(0, Ordering::Relaxed);
        self.try_add_one(me)
    }
}

/// The owner slot of a thread of the model. It is never freed, in the model as in a program.
fn owner_slot() -> &'static OwnerSlot {
    Box::leak(Box::new(OwnerSlot::new(AtomicUsize::new(0))))
}

/// A lock without an owner. The first thread that locks it becomes the owner, and so does any thread with enough turns.
fn biased(rebias_threshold: u32) -> BiasedLock {
    let null = || AtomicPtr::new(ptr::null_mut());
    BiasedLock {
        bias: Bias { biased_to: null(), owner: null() },
        contended: Contended {
            spin: Spin::new(AtomicBool::new(false)),
            last: null(),
            streak: AtomicU32::new(0),
            rebias_threshold: AtomicU32::new(rebias_threshold),
            crowd: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        },
    }
}

#[test]
fn the_lock_excludes_other_threads_and_publishes_writes() {
    loom::model(|| {
        let guarded = Arc::new(Guarded::new(Spin::new(AtomicBool::new(false))));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || guarded.try_add_one() + guarded.try_add_one())
            })
            .collect();
        let added: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
        let total = guarded.total();
        assert!(total == added && total >= 1, "{total} of {added}");
    });
}

#[test]
fn an_owner_and_a_visitor_are_never_both_inside() {
    loom::model(|| {
        let guarded = Arc::new(Guarded::new(biased(0)));
        let me = owner_slot();
        let mut added = guarded.try_add_one(me);
        let visitor = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.try_add_one(owner_slot()) + guarded.try_add_one(owner_slot()))
        };
        added += guarded.try_add_one(me);
        added += guarded.try_add_one(me);
        added += visitor.join().unwrap();
        assert_eq!(guarded.total(), added);
    });
}

#[test]
fn a_former_owner_lets_no_thread_in_beside_the_owner() {
    let mut model = loom::model::Builder::new();
    // Three threads that each change the owner have too many interleavings to try all of them.
    model.preemption_bound = Some(3);
    model.check(|| {
        let guarded = Arc::new(Guarded::new(biased(0)));
        let me = owner_slot();
        let mut added = guarded.try_add_one(me);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || {
                    let me = owner_slot();
                    guarded.try_add_one_and_own(me) + guarded.try_add_one(me)
                })
            })
            .collect();
        added += guarded.try_add_one(me);
        added += others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        assert_eq!(guarded.total(), added);
    });
}

#[test]
fn an_owner_seen_in_its_other_lock_has_published_its_writes() {
    loom::model(|| {
        let this = Arc::new(Guarded::new(biased(0)));
        let other = Arc::new(Guarded::new(biased(0)));
        let me = owner_slot();
        let mut added = this.try_add_one(me) + other.try_add_one(me);
        let visitor = {
            let this = Arc::clone(&this);
            thread::spawn(move || this.try_add_one(owner_slot()))
        };
        added += this.try_add_one(me) + other.try_add_one(me);
        added += visitor.join().unwrap();
        assert_eq!(this.total() + other.total(), added);
    });
}

#[test]
fn a_thread_that_sees_a_stream_in_the_table_sees_its_heap() {
    loom::model(|| {
        let slots = Arc::new(StreamMap::new(1));
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

/// An event with two equal words: a mix of two events has different words.
const fn event(word: u64) -> [u64; 2] {
    [word; 2]
}

/// Whether a slot is empty, or contains one complete event of `events`.
fn holds(ring: &Ring<2>, place: usize, events: &[u64]) -> bool {
    let is_one = |written: RingEntry<2>| events.iter().any(|word| written.words == event(*word));
    ring.read(place).is_none_or(is_one)
}

#[test]
fn a_reader_of_an_overwritten_event_sees_old_new_or_none() {
    loom::model(|| {
        let ring = Arc::new(Ring::<2>::with(1, 1, 1));
        assert!(ring.put(0, 0, event(1)));
        let reader = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || assert!(holds(&ring, 0, &[1, 2, 3])))
        };
        assert!(ring.put(0, 1, event(2)));
        assert!(ring.put(0, 2, event(3)));
        reader.join().unwrap();
        let last = ring.read(0).map(|written| (written.ticket, written.words));
        assert_eq!(last, Some((2, event(3))));
    });
}

#[test]
fn two_writers_of_one_slot_leave_one_whole_event() {
    loom::model(|| {
        let ring = Arc::new(Ring::<2>::with(1, 1, 1));
        let write = |ticket| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.put(0, ticket, event(ticket + 1)))
        };
        // A writer of an earlier round writes first or not at all. If another writer is active, `put` fails.
        let (slow, fast) = (write(0), write(1));
        assert!(holds(&ring, 0, &[1, 2]));
        let (slow, fast) = (slow.join().unwrap(), fast.join().unwrap());
        assert!(slow || fast);
        let left = ring.read(0).map(|written| written.words);
        assert_eq!(left, Some(event(if fast { 2 } else { 1 })));
    });
}

#[test]
fn no_two_claim_the_same_places() {
    loom::model(|| {
        let ring = Arc::new(Ring::<2>::with(4, 2, 4));
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.write(&mut RingWriter::default(), event(1)))
        };
        ring.write(&mut RingWriter::default(), event(2));
        other.join().unwrap();
        let mut left: Vec<u64> = ring.all().map(|written| written.words[0]).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2]);
    });
}

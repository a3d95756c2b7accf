//! A table that maps a number to a smaller one, and is read without a lock.

#![forbid(unsafe_code)]

use crate::{AtomicU32, AtomicUsize, Ordering};

/// A table from keys to values. Readers take no lock; writers take turns. Nothing is ever removed.
#[derive(Debug)]
pub(crate) struct StreamMap {
    slots: Box<[MapSlot]>,
}

#[derive(Debug)]
struct MapSlot {
    /// The key, plus one; zero while the slot is empty.
    key: AtomicUsize,
    value: AtomicU32,
}

impl StreamMap {
    /// A table of `1 << bits` slots.
    pub(crate) fn new(bits: u32) -> Self {
        let slot = |_| MapSlot { key: AtomicUsize::new(0), value: AtomicU32::new(0) };
        Self { slots: (0..1_usize << bits).map(slot).collect() }
    }

    /// The number of keys that may be inserted; more would make searches long.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<u32> {
        let mut at = self.first_place(key);
        for _ in 0..self.slots.len() {
            let slot = &self.slots[at];
            // Pairs with the store in `insert`: a reader that sees the key sees the value.
            match slot.key.load(Ordering::Acquire) {
                0 => return None,
                found if found == key.wrapping_add(1) => {
                    return Some(slot.value.load(Ordering::Relaxed));
                }
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
        None
    }

    /// Inserts a new key; the caller excludes concurrent inserts. `false` if every slot is taken.
    pub(crate) fn insert(&self, key: usize, value: u32) -> bool {
        let mut at = self.first_place(key);
        for _ in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.key.load(Ordering::Relaxed) == 0 {
                slot.value.store(value, Ordering::Relaxed);
                // Pairs with the load in `get`.
                slot.key.store(key.wrapping_add(1), Ordering::Release);
                return true;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        false
    }

    /// The slot where the search for a key begins; it continues with the following slots.
    #[inline]
    fn first_place(&self, key: usize) -> usize {
        // Handles are pointers with similar low bits, so the high bits of the product choose the slot.
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & (self.slots.len() - 1)
    }
}

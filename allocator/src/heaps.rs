//! The heaps of one allocator, with a lock-free lookup by number.

#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use cachette_hal::Device;

use crate::heap::Heap;
use crate::sync::Mutex;

/// The number of heaps in `first`. The first part has the same length, and each further part twice the previous length.
const FIRST: usize = 32;
const PARTS: usize = 24;

/// The heaps of one allocator, of all its pools. Heaps are added and never removed.
pub(crate) struct Heaps<D: Device> {
    /// The first heaps, without an indirection. Most programs have no more.
    first: [OnceLock<Arc<Heap<D>>>; FIRST],
    /// The rest, in parts that are created on demand.
    parts: [OnceLock<HeapPage<D>>; PARTS],
    /// The number of heaps. The lock is held while one is added.
    count: Mutex<u32>,
}

type HeapPage<D> = Box<[OnceLock<Arc<Heap<D>>>]>;

impl<D: Device> Default for Heaps<D> {
    fn default() -> Self {
        Self {
            first: [const { OnceLock::new() }; FIRST],
            parts: [const { OnceLock::new() }; PARTS],
            count: Mutex::new(0),
        }
    }
}

impl<D: Device> Heaps<D> {
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<Heap<D>>> {
        if let Some(slot) = self.first.get(number as usize) {
            return slot.get();
        }
        let (part, place) = place_of(number);
        self.parts.get(part)?.get()?.get(place)?.get()
    }

    /// Adds the heap that `make` creates. Returns `None` without room, which takes more streams than any driver has.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Heap<D>) -> Option<&Arc<Heap<D>>> {
        let mut count = self.count.lock();
        let number = *count;
        let heap = self.slot(number)?.get_or_init(|| Arc::new(make(number)));
        *count += 1;
        Some(heap)
    }

    /// The slot of a heap, created on demand.
    fn slot(&self, number: u32) -> Option<&OnceLock<Arc<Heap<D>>>> {
        if let Some(slot) = self.first.get(number as usize) {
            return Some(slot);
        }
        let (part, place) = place_of(number);
        let slots = self.parts.get(part)?.get_or_init(|| (0..FIRST << part).map(|_| OnceLock::new()).collect());
        slots.get(place)
    }

    /// Every heap, in order of creation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Heap<D>>> {
        let count = *self.count.lock();
        (0..count).filter_map(|number| self.get(number))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Heap<D>>> {
        self.iter().cloned().collect()
    }
}

/// The part, and the index in it, of a heap after the first ones.
const fn place_of(number: u32) -> (usize, usize) {
    let part = (number as usize / FIRST).ilog2() as usize;
    (part, number as usize - (FIRST << part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_places_one_after_the_other() {
        assert_eq!(place_of(32), (0, 0));
        assert_eq!(place_of(63), (0, 31));
        assert_eq!(place_of(64), (1, 0));
        assert_eq!(place_of(127), (1, 63));
        assert_eq!(place_of(128), (2, 0));
    }
}

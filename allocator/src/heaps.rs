//! The heaps of one allocator, found by number or by stream without a lock.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cachette_hal::{Device, StreamRef};

use crate::fork::ProcessGuard;
use crate::heap::Heap;
use crate::sync::stream_map::StreamMap;

/// How many heaps come before the parts; the first part is as long, and every further one twice as long.
const FIRST: usize = 32;
const PARTS: usize = 24;
/// log2 of the size of the first table of streams; every further one is eight times as large.
const FIRST_TABLE: u32 = 7;
const TABLES: usize = 6;

/// The heaps of one allocator, of all its pools. Heaps are added and never taken out.
#[derive(Debug)]
pub(crate) struct Heaps<D: Device> {
    /// The first heaps, in reach without a detour: most programs have no more.
    first: [OnceLock<Arc<Heap<D>>>; FIRST],
    /// The rest, in parts each of which is made when it is needed.
    parts: [OnceLock<HeapPage<D>>; PARTS],
    /// How many heaps there are; held while one is added.
    count: Mutex<u32>,
    origin: ProcessGuard,
}

type HeapPage<D> = Box<[OnceLock<Arc<Heap<D>>>]>;

impl<D: Device> Default for Heaps<D> {
    fn default() -> Self {
        Self {
            first: [const { OnceLock::new() }; FIRST],
            parts: [const { OnceLock::new() }; PARTS],
            count: Mutex::new(0),
            origin: ProcessGuard::here(),
        }
    }
}

impl<D: Device> Heaps<D> {
    /// The heap with this number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<Heap<D>>> {
        if let Some(slot) = self.first.get(number as usize) {
            return slot.get();
        }
        let (part, place) = place_of(number);
        self.parts.get(part)?.get()?.get(place)?.get()
    }

    /// Adds a heap, made by `make` with the number it gets; `None` when there is no room for another: that takes more
    /// streams than any driver has.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Heap<D>) -> Option<&Arc<Heap<D>>> {
        let mut count = self.lock();
        let number = *count;
        let heap = self.slot(number)?.get_or_init(|| Arc::new(make(number)));
        *count += 1;
        Some(heap)
    }

    /// The place of a heap, made if need be.
    fn slot(&self, number: u32) -> Option<&OnceLock<Arc<Heap<D>>>> {
        if let Some(slot) = self.first.get(number as usize) {
            return Some(slot);
        }
        let (part, place) = place_of(number);
        let slots = self.parts.get(part)?.get_or_init(|| (0..FIRST << part).map(|_| OnceLock::new()).collect());
        slots.get(place)
    }

    /// Every heap there is now, in the order they were made; none in a forked child, which must not touch them.
    pub(crate) fn all(&self) -> Vec<Arc<Heap<D>>> {
        if self.origin.is_inherited() {
            return Vec::new();
        }
        let count = *self.lock();
        (0..count).filter_map(|n| self.get(n).cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        // The count is raised last, so a panic in `make` leaves everything as it was.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From the driver's stream to the number of its heap in one pool.
#[derive(Debug)]
pub(crate) struct StreamTable {
    tables: [OnceLock<StreamMap>; TABLES],
    /// How many streams are in; held while one is added.
    count: Mutex<usize>,
}

impl Default for StreamTable {
    fn default() -> Self {
        Self { tables: [const { OnceLock::new() }; TABLES], count: Mutex::new(0) }
    }
}

impl StreamTable {
    /// The number of a stream's heap.
    #[inline]
    pub(crate) fn get(&self, stream: StreamRef) -> Option<u32> {
        let first = self.tables[0].get()?;
        match first.get(stream.raw()) {
            Some(number) => Some(number),
            None => self.get_later(stream),
        }
    }

    #[cold]
    fn get_later(&self, stream: StreamRef) -> Option<u32> {
        let later = self.tables[1..].iter().map_while(OnceLock::get);
        later.into_iter().find_map(|table| table.get(stream.raw()))
    }

    /// The number of a stream's heap, which `make` tells if the stream has none yet; `None` if it cannot, or if there
    /// is no room for another stream.
    pub(crate) fn get_or_add(&self, stream: StreamRef, make: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = self.get(stream) {
            return Some(number);
        }
        let table = self.table_with_room(*count)?;
        let number = make()?;
        if !table.insert(stream.raw(), number) {
            return None;
        }
        *count += 1;
        Some(number)
    }

    /// The first table that is not full when `used` streams are in.
    fn table_with_room(&self, mut used: usize) -> Option<&StreamMap> {
        for (bits, table) in (FIRST_TABLE..).step_by(3).zip(&self.tables) {
            let table = table.get_or_init(|| StreamMap::new(bits));
            if used < table.capacity() {
                return Some(table);
            }
            used -= table.capacity();
        }
        None
    }
}

/// The part of the list, and the place in it, of a heap behind the first ones.
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

    #[test]
    fn every_key_keeps_its_value_until_the_table_is_full() {
        let slots = StreamMap::new(6);
        for key in 0..64 {
            assert_eq!(slots.get(key * 512), None);
            assert!(slots.insert(key * 512, u32::try_from(key).unwrap() + 7));
        }
        assert!(!slots.insert(1, 1));
        for key in 0..64 {
            assert_eq!(slots.get(key * 512), Some(u32::try_from(key).unwrap() + 7));
        }
        assert_eq!(slots.get(1), None);
    }
}

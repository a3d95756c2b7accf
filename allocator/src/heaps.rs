//! The heaps of one pool, found by number or by stream without a lock.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cachette_hal::{Device, StreamRef};

use crate::heap::Heap;
use crate::slots::Slots;

/// How many heaps come before the parts; the first part is as long, and every further one twice as long.
const FIRST: usize = 32;
const PARTS: usize = 24;
/// log2 of the size of the first table of streams; every further one is eight times as large.
const FIRST_TABLE: u32 = 7;
const TABLES: usize = 6;

/// The heaps of one pool. Heaps are added and never taken out.
#[derive(Debug)]
pub(crate) struct Heaps<D: Device> {
    /// The first heaps, in reach without a detour: most programs have no more.
    first: [OnceLock<Arc<Heap<D>>>; FIRST],
    /// The rest, in parts each of which is made when it is needed.
    parts: [OnceLock<Part<D>>; PARTS],
    /// From the driver's stream to the number of its heap.
    streams: [OnceLock<Slots>; TABLES],
    /// How many heaps there are; held while one is added.
    count: Mutex<u32>,
}

type Part<D> = Box<[OnceLock<Arc<Heap<D>>>]>;

impl<D: Device> Default for Heaps<D> {
    fn default() -> Self {
        Self {
            first: [const { OnceLock::new() }; FIRST],
            parts: [const { OnceLock::new() }; PARTS],
            streams: [const { OnceLock::new() }; TABLES],
            count: Mutex::new(0),
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

    /// The heap of a stream.
    #[inline]
    pub(crate) fn of_stream(&self, stream: StreamRef) -> Option<&Arc<Heap<D>>> {
        let first = self.streams[0].get()?;
        let number = match first.get(stream.raw()) {
            Some(number) => number,
            None => self.number_of_later_stream(stream)?,
        };
        self.get(number)
    }

    #[cold]
    fn number_of_later_stream(&self, stream: StreamRef) -> Option<u32> {
        let later = self.streams[1..].iter().map_while(OnceLock::get);
        later.into_iter().find_map(|table| table.get(stream.raw()))
    }

    /// The heap of a stream, made by `make` with the number it gets if there is none yet.
    ///
    /// `None` when there is no room for another: that takes more streams than any driver has.
    pub(crate) fn of_stream_or_add(
        &self,
        stream: StreamRef,
        make: impl FnOnce(u32) -> Heap<D>,
    ) -> Option<&Arc<Heap<D>>> {
        let mut count = self.lock();
        if let Some(heap) = self.of_stream(stream) {
            return Some(heap);
        }
        let number = *count;
        let table = self.table_with_room(number as usize)?;
        let heap = self.slot(number)?.get_or_init(|| Arc::new(make(number)));
        if !table.insert(stream.raw(), number) {
            return None;
        }
        *count += 1;
        Some(heap)
    }

    /// Adds a heap that no stream leads to, made by `make` with the number it gets; `None` when there is no room.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Heap<D>) -> Option<&Arc<Heap<D>>> {
        let mut count = self.lock();
        let number = *count;
        let heap = self.slot(number)?.get_or_init(|| Arc::new(make(number)));
        *count += 1;
        Some(heap)
    }

    /// The place of a heap, made if need be.
    fn slot(&self, number: u32) -> Option<&OnceLock<Arc<Heap<D>>>> {
        match self.first.get(number as usize) {
            Some(slot) => Some(slot),
            None => self.slot_or_make(number),
        }
    }

    /// The place of a heap behind the first ones.
    fn slot_or_make(&self, number: u32) -> Option<&OnceLock<Arc<Heap<D>>>> {
        let (part, place) = place_of(number);
        let slots = self
            .parts
            .get(part)?
            .get_or_init(|| (0..FIRST << part).map(|_| OnceLock::new()).collect());
        slots.get(place)
    }

    /// The first table that is not full when `used` streams are in.
    fn table_with_room(&self, mut used: usize) -> Option<&Slots> {
        for (bits, table) in (FIRST_TABLE..).step_by(3).zip(&self.streams) {
            let table = table.get_or_init(|| Slots::new(bits));
            if used < table.capacity() {
                return Some(table);
            }
            used -= table.capacity();
        }
        None
    }

    /// Every heap there is now, in the order they were made.
    pub(crate) fn all(&self) -> Vec<Arc<Heap<D>>> {
        let count = *self.lock();
        (0..count).filter_map(|n| self.get(n).cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        // The count is raised last, so a panic in `make` leaves everything as it was.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
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
        let slots = Slots::new(6);
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

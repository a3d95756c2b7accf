//! Maps a stream to the number of its heap, without a lock.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use crate::Mutex;
use crate::stream_map::StreamMap;

/// log2 of the size of the first table of streams; every further one is eight times as large.
const FIRST_TABLE: u32 = 7;
const TABLES: usize = 6;

/// Maps the driver's stream to the number of its heap in one pool.
#[derive(Debug, Default)]
pub struct StreamTable {
    tables: [OnceLock<StreamMap>; TABLES],
    /// The number of streams. The lock is held while one is added.
    count: Mutex<usize>,
}

impl StreamTable {
    /// Returns the number of a stream's heap, if it has one.
    #[inline]
    pub fn get(&self, stream: usize) -> Option<u32> {
        self.tables[0].get()?.get(stream).or_else(|| self.get_later(stream))
    }

    #[cold]
    fn get_later(&self, stream: usize) -> Option<u32> {
        self.tables[1..].iter().map_while(OnceLock::get).find_map(|table| table.get(stream))
    }

    /// Returns the number of a stream's heap. Calls `make` if there is none. `None` if that fails or there is no room.
    pub fn get_or_add(&self, stream: usize, make: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let mut count = self.count.lock();
        if let Some(number) = self.get(stream) {
            return Some(number);
        }
        let table = self.table_with_room(*count)?;
        let number = make()?;
        table.insert(stream, number).then(|| {
            *count += 1;
            number
        })
    }

    /// Returns the first table with room if there are `used` streams.
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

#[cfg(test)]
mod tests {
    use super::*;

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

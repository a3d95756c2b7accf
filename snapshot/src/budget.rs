//! The memory and items used while a file is read, checked against its limits.

use std::cell::Cell;

use crate::{Excess, Frame, Limits, StackId, TextId};

/// Bytes of memory per byte of the file; real snapshots need about ten.
const BY_BYTE: u64 = 64;
/// Bytes of memory for any file.
const BASE: u64 = 64 << 20;
/// Keys and values of dicts that are read for each byte of the file, and for any file. A dict that is not shared has
/// less than one for each byte.
const STEPS_BY_BYTE: u64 = 64;
const STEPS: u64 = 64 << 20;
/// The most settings, including nested ones. No allocator has as many.
const MOST_SETTINGS: usize = 4096;
/// The deepest nesting of tables; the reference has one level.
const DEEPEST_SETTING: usize = 16;

/// The memory and items used while one file is read.
///
/// Readers share it by reference. The reader that unpacks the file counts its bytes, and the readers that build the
/// snapshot charge for memory. Memory is charged before it is allocated, and never credited back.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// Bytes read from the file.
    read: Cell<u64>,
    /// Bytes of memory charged.
    charged: Cell<u64>,
    /// Items counted.
    items: Cell<u64>,
    /// Keys and values of dicts that were read.
    steps: Cell<u64>,
}

impl Budget {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { limits, read: Cell::new(0), charged: Cell::new(0), items: Cell::new(0), steps: Cell::new(0) }
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts bytes read from the file. Returns whether they are within the limit.
    pub(crate) fn read(&self, bytes: usize) -> bool {
        self.read.set(self.read.get().saturating_add(bytes as u64));
        self.read.get() <= self.limits.bytes
    }

    /// Charges for `count` values of type `T`.
    pub(crate) fn charge<T>(&self, count: usize) -> Result<(), Excess> {
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        let charged = self.charged.get().saturating_add(bytes);
        let whole = self.read.get().saturating_mul(BY_BYTE).saturating_add(BASE).min(self.limits.memory);
        if charged > whole {
            return Err(Excess::Memory(whole));
        }
        self.charged.set(charged);
        Ok(())
    }

    /// Reserves room for `more` values at the end of a list. The list doubles, and all of its room is charged.
    pub(crate) fn reserve<T>(&self, list: &mut Vec<T>, more: usize) -> Result<(), Excess> {
        if list.capacity() - list.len() >= more {
            return Ok(());
        }
        let room = list.len().saturating_add(more).max(list.capacity().saturating_mul(2)).max(4);
        self.charge::<T>(room - list.capacity())?;
        list.reserve_exact(room - list.len());
        Ok(())
    }

    /// Charges for an entry of a hash table, which may double and be half empty.
    pub(crate) fn charge_entry<K, V>(&self) -> Result<(), Excess> {
        self.charge::<(K, V)>(4)
    }

    /// Counts more events, blocks, segments or annotations.
    pub(crate) fn count_items(&self, more: usize) -> Result<(), Excess> {
        let items = self.items.get().saturating_add(more as u64);
        if items > self.limits.items {
            return Err(Excess::TooMany {
                what: "are more events, blocks, segments and annotations",
                limit: self.limits.items,
            });
        }
        self.items.set(items);
        Ok(())
    }

    /// Counts the keys and values of a dict that is read. A file can refer to one long dict many times.
    pub(crate) fn count_steps(&self, count: usize) -> Result<(), Excess> {
        let steps = self.steps.get().saturating_add(count as u64);
        let limit = self.read.get().saturating_mul(STEPS_BY_BYTE).saturating_add(STEPS);
        if steps > limit {
            return Err(Excess::TooMany { what: "are more entries in shared dicts", limit });
        }
        self.steps.set(steps);
        Ok(())
    }
}

impl Budget {
    /// Charges for a frame, which is stored twice: by number, and as a key for lookups.
    pub(crate) fn charge_frame(&self, frame: &Frame) -> Result<(), Excess> {
        self.charge::<u8>(2 * (frame.name.len() + frame.file.len()))?;
        self.charge::<Frame>(2)?;
        self.charge_entry::<Frame, u32>()
    }

    /// Charges for a stack of that many frames, which is also stored twice.
    pub(crate) fn charge_stack(&self, frames: usize) -> Result<(), Excess> {
        self.charge::<u32>(2 * frames)?;
        self.charge::<Box<[u32]>>(2)?;
        self.charge_entry::<Box<[u32]>, StackId>()
    }

    /// Charges for a text of that many bytes, which is also stored twice.
    pub(crate) fn charge_text(&self, bytes: usize) -> Result<(), Excess> {
        self.charge::<u8>(bytes.saturating_mul(2))?;
        self.charge::<String>(2)?;
        self.charge_entry::<String, TextId>()
    }
}

pub(crate) const fn check_settings(count: usize, depth: usize) -> Result<(), Excess> {
    if count <= MOST_SETTINGS && depth <= DEEPEST_SETTING {
        return Ok(());
    }
    Err(Excess::TooMany { what: "are more settings, or deeper ones,", limit: MOST_SETTINGS as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_never_has_more_room_than_was_charged() {
        let budget = Budget::new(Limits { memory: 4096, ..Limits::DEFAULT });
        let mut list: Vec<u64> = Vec::new();
        while budget.reserve(&mut list, 1).is_ok() {
            list.push(0);
        }
        assert_eq!(list.capacity() as u64 * 8, budget.charged.get());
        assert_eq!(budget.charged.get(), 4096);
        let whole = budget.reserve(&mut list, usize::MAX);
        assert_eq!(whole, Err(Excess::Memory(4096)));
    }

    #[test]
    fn a_short_file_gets_less_memory_than_a_long_one() {
        let budget = Budget::new(Limits::DEFAULT);
        let base = usize::try_from(BASE).unwrap();
        budget.charge::<u8>(base).unwrap();
        assert_eq!(budget.charge::<u8>(1), Err(Excess::Memory(BASE)));
        assert!(budget.read(1));
        budget.charge::<u8>(64).unwrap();
        assert_eq!(budget.charge::<u8>(1), Err(Excess::Memory(BASE + 64)));
    }
}

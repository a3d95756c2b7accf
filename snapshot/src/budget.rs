//! What reading one file has taken so far, held against its limits.

use std::cell::Cell;

use crate::{Excess, Frame, Limits, StackId, TextId};

/// Bytes of memory for each byte of the file; real snapshots need about ten.
const BY_BYTE: u64 = 64;
/// Bytes of memory for any file.
const BASE: u64 = 64 << 20;
/// More settings than any allocator has, those inside of others included.
const MOST_SETTINGS: usize = 4096;
/// Tables inside of each other; the reference has one.
const DEEPEST_SETTING: usize = 16;

/// What reading one file has taken so far.
///
/// Readers share it by reference: the one that unpacks the file counts its bytes, the ones that build the snapshot
/// charge for what they are about to build. Memory is charged before it is taken, and never credited back.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// Bytes of the file that were read.
    read: Cell<u64>,
    /// Bytes of memory that were charged.
    charged: Cell<u64>,
    /// Items that were counted.
    items: Cell<u64>,
}

impl Budget {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { limits, read: Cell::new(0), charged: Cell::new(0), items: Cell::new(0) }
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Notes that more bytes of the file were read; whether it may have so many.
    pub(crate) fn read(&self, bytes: usize) -> bool {
        self.read.set(self.read.get().saturating_add(bytes as u64));
        self.read.get() <= self.limits.bytes
    }

    /// Takes room for `count` things of type `T`.
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

    /// Makes room for `more` things at the end of a list; the list doubles, and all of that is charged.
    pub(crate) fn reserve<T>(&self, list: &mut Vec<T>, more: usize) -> Result<(), Excess> {
        if list.capacity() - list.len() >= more {
            return Ok(());
        }
        let room = list.len().saturating_add(more).max(list.capacity().saturating_mul(2)).max(4);
        self.charge::<T>(room - list.capacity())?;
        list.reserve_exact(room - list.len());
        Ok(())
    }

    /// Takes room for an entry of a hash table, which may double and be half empty.
    pub(crate) fn charge_entry<K, V>(&self) -> Result<(), Excess> {
        self.charge::<(K, V)>(4)
    }

    /// Counts one more event, block, segment or annotation.
    pub(crate) fn count_item(&self) -> Result<(), Excess> {
        let items = self.items.get() + 1;
        if items > self.limits.items {
            return Err(Excess::TooMany {
                what: "are more events, blocks, segments and annotations",
                limit: self.limits.items,
            });
        }
        self.items.set(items);
        Ok(())
    }
}

impl Budget {
    /// Takes room for a frame, which is kept twice: by number, and to be found again.
    pub(crate) fn charge_frame(&self, frame: &Frame) -> Result<(), Excess> {
        self.charge::<u8>(2 * (frame.name.len() + frame.file.len()))?;
        self.charge::<Frame>(2)?;
        self.charge_entry::<Frame, u32>()
    }

    /// Takes room for a stack of so many frames, which is kept twice too.
    pub(crate) fn charge_stack(&self, frames: usize) -> Result<(), Excess> {
        self.charge::<u32>(2 * frames)?;
        self.charge::<Box<[u32]>>(2)?;
        self.charge_entry::<Box<[u32]>, StackId>()
    }

    /// Takes room for words of so many bytes, which are kept twice too.
    pub(crate) fn charge_text(&self, bytes: usize) -> Result<(), Excess> {
        self.charge::<u8>(bytes.saturating_mul(2))?;
        self.charge::<String>(2)?;
        self.charge_entry::<String, TextId>()
    }
}

/// Whether a file may have so many settings, and one so deep.
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

//! Where the memory of a backend lies: the same calls give the same order of addresses in every run.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Addresses of memory that does not exist: above the likely addresses of heaps, and below the host's mappings, since
/// page-locked memory is in the same table.
const PHANTOM: Range<u64> = 0x7000_0000_0000..0x7e00_0000_0000;

/// Addresses of memory, in parts of [`PART`] bytes. Backends take turns.
const REAL: Range<u64> = 0x6000_0000_0000..PHANTOM.start;
const PART: u64 = 1 << 38;

/// Allocates ranges of addresses that never overlap, and reuses freed ranges.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// Those that were never used.
    unused: Range<u64>,
    /// Freed ranges, by size and alignment.
    returned: HashMap<(u64, u64), Vec<u64>>,
}

impl Addresses {
    pub(crate) fn new(phantom: bool) -> Self {
        static BACKENDS: AtomicU64 = AtomicU64::new(0);
        let part = || {
            let number = BACKENDS.fetch_add(1, Relaxed) % ((REAL.end - REAL.start) / PART);
            let start = REAL.start + number * PART;
            start..start + PART
        };
        Self { unused: if phantom { PHANTOM } else { part() }, returned: HashMap::new() }
    }

    /// Allocates `bytes` addresses aligned to `alignment`. Returns `None` at the end of the space.
    ///
    /// A `wish` is honoured only in the unused end of the space.
    pub(crate) fn take(&mut self, bytes: u64, alignment: u64, wish: Option<u64>) -> Option<u64> {
        let wish = wish.filter(|at| *at >= self.unused.start && at.is_multiple_of(alignment));
        if wish.is_none()
            && let Some(start) = self.returned.get_mut(&(bytes, alignment)).and_then(Vec::pop)
        {
            return Some(start);
        }
        let start = match wish {
            Some(at) => at,
            None => self.unused.start.checked_next_multiple_of(alignment)?,
        };
        self.unused.start = start.checked_add(bytes).filter(|next| *next <= self.unused.end)?;
        Some(start)
    }

    /// Frees a range from [`take`](Self::take) with the same size and alignment.
    pub(crate) fn give_back(&mut self, start: u64, bytes: u64, alignment: u64) {
        self.returned.entry((bytes, alignment)).or_default().push(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_aligned_apart_and_used_again() {
        let mut addresses = Addresses::new(true);
        let first = addresses.take(1000, 512, None).unwrap();
        let second = addresses.take(1000, 512, None).unwrap();
        assert_eq!((first % 512, second % 512), (0, 0));
        assert!(second >= first + 1000);
        addresses.give_back(first, 1000, 512);
        assert_eq!(addresses.take(1000, 512, None), Some(first));
        assert!(addresses.take(1000, 512, None).unwrap() >= second + 1000);
    }

    #[test]
    fn a_wish_beyond_everything_used_is_honoured() {
        let mut addresses = Addresses::new(true);
        let first = addresses.take(4096, 4096, None).unwrap();
        let wish = first + (1 << 30);
        assert_eq!(addresses.take(4096, 4096, Some(wish)), Some(wish));
        assert_ne!(addresses.take(4096, 4096, Some(first)), Some(first));
    }

    #[test]
    fn the_space_ends() {
        let mut addresses = Addresses::new(true);
        assert_eq!(addresses.take(u64::MAX, 512, None), None);
        assert_eq!(addresses.take(PHANTOM.end - PHANTOM.start + 1, 512, None), None);
        assert_eq!(addresses.take(PHANTOM.end - PHANTOM.start, 512, None), Some(PHANTOM.start));
        assert_eq!(addresses.take(1, 512, None), None);
    }
}

//! Addresses of memory that does not exist.

use std::collections::HashMap;

/// The start of phantom addresses: above the likely addresses of heaps.
const FIRST: u64 = 0x7000_0000_0000;

/// The end of phantom addresses: below the host's mappings, since page-locked memory is in the same table.
const END: u64 = 0x7e00_0000_0000;

/// Allocates ranges of addresses that never overlap, and reuses freed ranges.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// All addresses from here on are unused.
    next: u64,
    /// Freed ranges, by size and alignment.
    returned: HashMap<(u64, u64), Vec<u64>>,
}

impl Addresses {
    /// Creates the unused space.
    pub(crate) fn new() -> Self {
        Self { next: FIRST, returned: HashMap::new() }
    }

    /// Allocates `bytes` addresses aligned to `alignment`. Returns `None` at the end of the space.
    ///
    /// A `wish` is honoured only in the unused end of the space.
    pub(crate) fn take(&mut self, bytes: u64, alignment: u64, wish: Option<u64>) -> Option<u64> {
        let wish = wish.filter(|at| *at >= self.next && at.is_multiple_of(alignment));
        if wish.is_none()
            && let Some(start) = self.returned.get_mut(&(bytes, alignment)).and_then(Vec::pop)
        {
            return Some(start);
        }
        let start = match wish {
            Some(at) => at,
            None => self.next.checked_next_multiple_of(alignment)?,
        };
        let next = start.checked_add(bytes).filter(|next| *next <= END)?;
        self.next = next;
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
        let mut addresses = Addresses::new();
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
        let mut addresses = Addresses::new();
        let first = addresses.take(4096, 4096, None).unwrap();
        let wish = first + (1 << 30);
        assert_eq!(addresses.take(4096, 4096, Some(wish)), Some(wish));
        assert_ne!(addresses.take(4096, 4096, Some(first)), Some(first));
    }

    #[test]
    fn the_space_ends() {
        let mut addresses = Addresses::new();
        assert_eq!(addresses.take(u64::MAX, 512, None), None);
        assert_eq!(addresses.take(END - FIRST + 1, 512, None), None);
        assert_eq!(addresses.take(END - FIRST, 512, None), Some(FIRST));
        assert_eq!(addresses.take(1, 512, None), None);
    }
}

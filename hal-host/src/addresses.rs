//! Where the memory of a backend lies: the same calls give the same order of addresses in every run.

use std::collections::{BTreeMap, HashMap};
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
    /// Freed ranges, by size and alignment. Some of them may have served a wish since.
    returned: HashMap<(u64, u64), Vec<u64>>,
    /// The freed ranges and those that were passed over, by start: their bytes. Adjacent ones are not joined.
    free: BTreeMap<u64, u64>,
}

impl Addresses {
    pub(crate) fn new(phantom: bool) -> Self {
        static BACKENDS: AtomicU64 = AtomicU64::new(0);
        let part = || {
            let number = BACKENDS.fetch_add(1, Relaxed) % ((REAL.end - REAL.start) / PART);
            let start = REAL.start + number * PART;
            start..start + PART
        };
        Self { unused: if phantom { PHANTOM } else { part() }, returned: HashMap::new(), free: BTreeMap::new() }
    }

    /// Allocates `bytes` addresses aligned to `alignment`, at a `wish` that is free. Returns `None` at the end of the space.
    pub(crate) fn take(&mut self, bytes: u64, alignment: u64, wish: Option<u64>) -> Option<u64> {
        if let Some(at) = wish.filter(|at| at.is_multiple_of(alignment) && self.take_at(*at, bytes, alignment)) {
            return Some(at);
        }
        while let Some(start) = self.returned.get_mut(&(bytes, alignment)).and_then(Vec::pop) {
            if self.free.get(&start) == Some(&bytes) {
                self.free.remove(&start);
                return Some(start);
            }
        }
        let start = self.unused.start.checked_next_multiple_of(alignment)?;
        self.unused.start = start.checked_add(bytes).filter(|next| *next <= self.unused.end)?;
        Some(start)
    }

    /// Allocates exactly these addresses, if they are free. What is free around them stays so.
    fn take_at(&mut self, at: u64, bytes: u64, alignment: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        if at >= self.unused.start && end <= self.unused.end {
            self.return_part(self.unused.start, at, alignment);
            self.unused.start = end;
            return true;
        }
        let first = self.free.range(..=at).next_back().map_or(at, |(start, _)| *start);
        let (mut covered, mut parts) = (at, Vec::new());
        for (start, length) in self.free.range(first..end) {
            if *start > covered || start + length <= covered {
                return false;
            }
            covered = start + length;
            parts.push((*start, covered));
        }
        if covered < end {
            return false;
        }
        for (start, stop) in parts {
            self.free.remove(&start);
            self.return_part(start, at, alignment);
            self.return_part(end, stop, alignment);
        }
        true
    }

    /// Frees the addresses from `start` to `end`, if there are any.
    fn return_part(&mut self, start: u64, end: u64, alignment: u64) {
        if start < end {
            self.free.insert(start, end - start);
            if start.is_multiple_of(alignment) {
                self.returned.entry((end - start, alignment)).or_default().push(start);
            }
        }
    }

    /// Frees a range from [`take`](Self::take) with the same size and alignment.
    pub(crate) fn give_back(&mut self, start: u64, bytes: u64, alignment: u64) {
        self.return_part(start, start + bytes, alignment);
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
    fn a_wish_for_freed_addresses_is_honoured_and_what_is_around_them_stays_free() {
        let mut addresses = Addresses::new(true);
        let ranges = [(); 3].map(|()| addresses.take(8192, 4096, None).unwrap());
        let live = addresses.take(4096, 4096, None).unwrap();
        for start in ranges {
            addresses.give_back(start, 8192, 4096);
        }
        // From the middle of the first to the middle of the last.
        let wish = ranges[0] + 4096;
        assert_eq!(addresses.take(16384, 4096, Some(wish)), Some(wish));
        assert_ne!(addresses.take(12288, 4096, Some(wish + 8192)), Some(wish + 8192), "it is taken");
        let around = [ranges[0], ranges[2] + 4096];
        assert_eq!(around.map(|at| addresses.take(4096, 4096, Some(at))), around.map(Some));
        assert!(addresses.take(8192, 4096, None).unwrap() > live, "none of the three is whole");
    }

    #[test]
    fn a_wish_that_no_space_has_is_not_an_error() {
        let mut addresses = Addresses::new(true);
        for wish in [512, PHANTOM.end, u64::MAX - 511, PHANTOM.end - 512] {
            let found = addresses.take(1024, 512, Some(wish)).unwrap();
            assert!(PHANTOM.contains(&found) && found != wish);
        }
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

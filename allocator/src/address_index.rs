//! Maps an address to the segment that contains it, without a lock.
//!
//! The address space is divided into pages of 2 MiB. At most two segments of that size touch one page: one that covers
//! its start, and one that begins inside it. The entry of a page holds the heap and segment of both. The entries are in
//! two levels of tables, and a lower table is created when first needed. Smaller segments, which only the driver's pool
//! has, are in a map with a lock. A result is a hint that the heap checks under its lock.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::blocks::SegmentId;
use crate::sync::Mutex;

const PAGE_SHIFT: u32 = 21;
const LEAF_SHIFT: u32 = 14;
const ROOT_SHIFT: u32 = 13;
/// Addresses from here on are kept in the map. Few systems have them.
const FAR: u64 = 1 << (PAGE_SHIFT + LEAF_SHIFT + ROOT_SHIFT);

/// A segment, identified by its heap and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentRef {
    pub(crate) heap: u32,
    pub(crate) segment: SegmentId,
}

impl SegmentRef {
    /// Zero means no segment, so the stored segment number is one higher.
    const fn pack(self) -> u64 {
        (self.heap as u64) << 32 | (self.segment.0 as u64 + 1)
    }

    #[inline]
    fn unpack(packed: u64) -> Option<Self> {
        let segment = u32::try_from((packed & 0xFFFF_FFFF).checked_sub(1)?).ok()?;
        Some(Self { heap: u32::try_from(packed >> 32).ok()?, segment: SegmentId(segment) })
    }
}

#[derive(Debug, Default)]
struct IndexPage {
    /// The segment that covers the page's first byte.
    over: AtomicU64,
    /// The segment that begins inside the page.
    within: AtomicU64,
}

/// The entries of neighbouring pages. The fixed length saves a lookup the comparison.
type IndexTable = Box<[IndexPage; 1 << LEAF_SHIFT]>;

fn new_table() -> IndexTable {
    let pages: Box<[IndexPage]> = (0..1 << LEAF_SHIFT).map(|_| IndexPage::default()).collect();
    pages.try_into().expect("it has that length")
}

pub(crate) struct Index {
    /// The tables, by the upper bits of a page's number.
    root: Box<[OnceLock<IndexTable>]>,
    /// Segments at far addresses, and those below the size of a page.
    others: Mutex<BTreeMap<u64, (u64, SegmentRef)>>,
}

impl Default for Index {
    fn default() -> Self {
        Self { root: (0..1 << ROOT_SHIFT).map(|_| OnceLock::new()).collect(), others: Mutex::default() }
    }
}

impl Index {
    /// Sets the segment at `base`; `None` removes it.
    pub(crate) fn set(&self, base: u64, bytes: u64, home: Option<SegmentRef>) {
        if base + bytes > FAR || bytes >> PAGE_SHIFT == 0 {
            let mut others = self.others.lock();
            others.remove(&base);
            others.extend(home.map(|home| (base, (bytes, home))));
            return;
        }
        let packed = home.map_or(0, SegmentRef::pack);
        for page in base >> PAGE_SHIFT..=(base + bytes - 1) >> PAGE_SHIFT {
            let (root, leaf) = places(page);
            let table = self.root[root].get_or_init(new_table);
            let entry = if base <= page << PAGE_SHIFT { &table[leaf].over } else { &table[leaf].within };
            // Pairs with the loads in `find`. A caller receives an address only after this store.
            entry.store(packed, Ordering::Release);
        }
    }

    /// Returns the segments that can contain `address`: the one that begins in its page, and the one over its start. A
    /// smaller one is found by [`find_other`](Self::find_other).
    #[inline]
    pub(crate) fn find(&self, address: u64) -> [Option<SegmentRef>; 2] {
        if address >= FAR {
            return [self.find_other(address), None];
        }
        let Some(page) = self.page(address) else { return [None, None] };
        // Both pair with the store in `set`.
        let over = page.over.load(Ordering::Acquire);
        let within = page.within.load(Ordering::Acquire);
        [SegmentRef::unpack(over), SegmentRef::unpack(within)]
    }

    /// Returns one of the segments that can contain `address`. It is the right one unless two touch the page.
    #[inline(always)]
    pub(crate) fn find_one(&self, address: u64) -> Option<SegmentRef> {
        let page = self.page(address)?;
        // Both pair with the store in `set`.
        let over = page.over.load(Ordering::Acquire);
        SegmentRef::unpack(if over == 0 { page.within.load(Ordering::Acquire) } else { over })
    }

    /// The entry of the page of `address`; none at a far address.
    #[inline(always)]
    fn page(&self, address: u64) -> Option<&IndexPage> {
        let (root, leaf) = places(address >> PAGE_SHIFT);
        Some(&self.root.get(root)?.get()?[leaf])
    }

    /// Returns the segment that contains `address`, if it is below the size of a page or at a far address.
    #[cold]
    pub(crate) fn find_other(&self, address: u64) -> Option<SegmentRef> {
        let others = self.others.lock();
        let (base, (bytes, home)) = others.range(..=address).next_back()?;
        (address < base + bytes).then_some(*home)
    }
}

/// Returns the position of a page: its index in the root, and in the table below.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a page has at most 43 bits, and `usize` has 64")]
const fn places(page: u64) -> (usize, usize) {
    ((page >> LEAF_SHIFT) as usize, page as usize & ((1 << LEAF_SHIFT) - 1))
}

#[cfg(test)]
mod tests {
    use cachette_hal::Ordinal;
    use cachette_hal_host::{HostBackend, HostConfig};

    use super::*;
    use crate::Allocator;

    const MIB: u64 = 1 << 20;

    fn home(heap: u32) -> SegmentRef {
        SegmentRef { heap, segment: SegmentId(heap * 7) }
    }

    #[test]
    fn neighbours_that_share_a_page_are_told_apart() {
        let index = Index::default();
        let start = 0x7000_0000_0000 + 4096;
        index.set(start, 2 * MIB, Some(home(1)));
        index.set(start + 2 * MIB, 4 * MIB, Some(home(2)));
        assert_eq!(index.find(start), [None, Some(home(1))]);
        let shared = index.find(start + 2 * MIB);
        assert_eq!(shared, [Some(home(1)), Some(home(2))]);
        index.set(start, 2 * MIB, None);
        assert_eq!(index.find(start + 2 * MIB), [None, Some(home(2))]);
        assert_eq!(index.find(start + 5 * MIB), [Some(home(2)), None]);
    }

    #[test]
    fn far_addresses_are_found_too() {
        let index = Index::default();
        index.set(FAR + 2 * MIB, 2 * MIB, Some(home(3)));
        assert_eq!(index.find(FAR + 3 * MIB), [Some(home(3)), None]);
        assert_eq!(index.find(FAR + 4 * MIB), [None, None]);
        assert_eq!(index.find(u64::MAX), [None, None]);
        index.set(FAR + 2 * MIB, 2 * MIB, None);
        assert_eq!(index.find(FAR + 3 * MIB), [None, None]);
    }

    #[test]
    fn segments_and_chunks_that_left_the_cache_are_forgotten() {
        for keys in ["", "expandable_segments:False"] {
            let backend = HostBackend::new(HostConfig::default().phantom(true)).unwrap();
            let device = backend.device(Ordinal(0)).unwrap();
            let allocator = Allocator::with_config(device, &keys.parse().unwrap());
            let stream = allocator.create_stream().unwrap();
            let index = &allocator.inner().shared.index;
            let address = allocator.allocate(4 * MIB, &stream).unwrap().address();
            assert_ne!(index.find(address), [None, None], "{keys}");
            allocator.empty_cache().unwrap();
            assert_eq!(index.find(address), [None, None], "{keys}");
        }
    }
}

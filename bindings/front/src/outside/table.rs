//! What the program took past the cache and has not given back.
//!
//! Physical memory lives as long as something refers to it: a handle, once for each `cuMemRelease` that it needs, or a
//! mapping. Handles are numbers that the driver gives out again, so what is given back leaves the table before the driver
//! is called, and comes back if the driver refuses.

use std::collections::BTreeMap;

/// Memory of any kind. `T` says what it is.
#[derive(Debug)]
pub(super) struct Table<T> {
    /// Memory with an address for its whole life.
    allocated: BTreeMap<u64, T>,
    physical: BTreeMap<u64, Physical<T>>,
    handles: BTreeMap<u64, KnownHandle>,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
    /// The number of the next physical memory.
    next: u64,
}

#[derive(Debug)]
struct Physical<T> {
    is: T,
    /// Handles, each as often as it must be released, and mappings.
    references: u64,
}

#[derive(Clone, Copy, Debug)]
struct KnownHandle {
    physical: u64,
    releases: u64,
}

/// A part of physical memory that is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    at: u64,
    bytes: u64,
    physical: u64,
}

/// A reference of a handle that is being released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Released {
    handle: u64,
    physical: u64,
}

impl<T: Copy> Table<T> {
    pub(super) const fn new() -> Self {
        Self {
            allocated: BTreeMap::new(),
            physical: BTreeMap::new(),
            handles: BTreeMap::new(),
            mappings: BTreeMap::new(),
            next: 0,
        }
    }

    /// Adds memory at an address. Returns what was there, which the driver must have taken back unseen.
    pub(super) fn allocate(&mut self, address: u64, is: T) -> Option<T> {
        self.allocated.insert(address, is)
    }

    /// Takes memory out that is about to be freed.
    pub(super) fn free(&mut self, address: u64) -> Option<T> {
        self.allocated.remove(&address)
    }

    /// Adds physical memory with its handle. Returns what the handle alone kept, if the driver has given it out again.
    pub(super) fn create(&mut self, handle: u64, is: T) -> Option<T> {
        let physical = self.next;
        self.next += 1;
        self.physical.insert(physical, Physical { is, references: 1 });
        let stale = self.handles.insert(handle, KnownHandle { physical, releases: 1 })?;
        self.drop_references(stale.physical, stale.releases)
    }

    /// Begins to release a handle.
    pub(super) fn release(&mut self, handle: u64) -> Option<Released> {
        let found = self.handles.get_mut(&handle)?;
        let physical = found.physical;
        found.releases -= 1;
        if found.releases == 0 {
            self.handles.remove(&handle);
        }
        Some(Released { handle, physical })
    }

    /// Takes back that a handle is released.
    pub(super) fn keep(&mut self, Released { handle, physical }: Released) {
        self.handles.entry(handle).or_insert(KnownHandle { physical, releases: 0 }).releases += 1;
    }

    /// Notes that a handle has been released. Returns the memory if that was the last reference.
    pub(super) fn released(&mut self, Released { physical, .. }: Released) -> Option<T> {
        self.drop_references(physical, 1)
    }

    /// Keeps the memory of a handle that is about to be mapped: another thread may release the handle meanwhile.
    pub(super) fn begin_map(&mut self, handle: u64) -> Option<u64> {
        let physical = self.handles.get(&handle)?.physical;
        self.physical.get_mut(&physical)?.references += 1;
        Some(physical)
    }

    /// Notes whether it was mapped. Returns what the driver must have unmapped unseen, or what nothing refers to now.
    pub(super) fn end_map(&mut self, at: u64, bytes: u64, physical: u64, is_mapped: bool) -> Option<T> {
        let stale =
            if is_mapped { self.mappings.insert(at, Mapping { at, bytes, physical })?.physical } else { physical };
        self.drop_references(stale, 1)
    }

    /// Takes the mappings out that lie in a range and are about to be unmapped.
    pub(super) fn unmap(&mut self, at: u64, bytes: u64) -> Vec<Mapping> {
        let Some(end) = at.checked_add(bytes) else { return Vec::new() };
        let inside = self.mappings.range(at..end).filter(|(at, mapping)| *at + mapping.bytes <= end);
        let inside: Vec<_> = inside.map(|(_, mapping)| *mapping).collect();
        for mapping in &inside {
            self.mappings.remove(&mapping.at);
        }
        inside
    }

    /// Takes back that something is unmapped.
    pub(super) fn keep_mapped(&mut self, mappings: Vec<Mapping>) {
        self.mappings.extend(mappings.into_iter().map(|mapping| (mapping.at, mapping)));
    }

    /// Notes that mappings have ended. Returns the memory that had no other reference.
    pub(super) fn unmapped(&mut self, mappings: &[Mapping]) -> Vec<T> {
        mappings.iter().filter_map(|mapping| self.drop_references(mapping.physical, 1)).collect()
    }

    /// Notes that the driver has given a handle of what is mapped at an address.
    pub(super) fn retain(&mut self, handle: u64, at: u64) {
        let mapping = self.mappings.range(..=at).next_back().filter(|(start, mapping)| at - *start < mapping.bytes);
        let Some(physical) = mapping.map(|(_, mapping)| mapping.physical) else { return };
        let found = self.handles.entry(handle).or_insert(KnownHandle { physical, releases: 0 });
        found.releases += 1;
        if let Some(physical) = self.physical.get_mut(&found.physical) {
            physical.references += 1;
        }
    }

    /// Notes that the driver has given a handle by an import. It is known only if the process made its memory.
    pub(super) fn import(&mut self, handle: u64) {
        let Some(found) = self.handles.get_mut(&handle) else { return };
        found.releases += 1;
        if let Some(physical) = self.physical.get_mut(&found.physical) {
            physical.references += 1;
        }
    }

    /// Takes out the memory with an address that `is_gone`, and physical memory too if `physically`.
    pub(super) fn forget(&mut self, physically: bool, is_gone: impl Fn(&T) -> bool) -> Vec<T> {
        let mut gone = Vec::new();
        let mut ends = |is: &T| {
            let ends = is_gone(is);
            gone.extend(ends.then_some(*is));
            ends
        };
        self.allocated.retain(|_, is| !ends(is));
        if physically {
            self.physical.retain(|_, physical| !ends(&physical.is));
            self.handles.retain(|_, handle| self.physical.contains_key(&handle.physical));
            self.mappings.retain(|_, mapping| self.physical.contains_key(&mapping.physical));
        }
        gone
    }

    fn drop_references(&mut self, physical: u64, count: u64) -> Option<T> {
        let found = self.physical.get_mut(&physical)?;
        found.references = found.references.saturating_sub(count);
        (found.references == 0).then(|| self.physical.remove(&physical)).flatten().map(|gone| gone.is)
    }

    /// Whether nothing is held.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let lengths = [self.allocated.len(), self.physical.len(), self.handles.len(), self.mappings.len()];
        lengths == [0; 4]
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const PAGE: u64 = 2 << 20;
    const NOTHING: [u64; 0] = [];

    /// Releases a handle, as after a success of the driver.
    fn release(table: &mut Table<u64>, handle: u64) -> Option<u64> {
        let released = table.release(handle)?;
        table.released(released)
    }

    fn map(table: &mut Table<u64>, at: u64, bytes: u64, handle: u64) -> Option<u64> {
        let physical = table.begin_map(handle)?;
        table.end_map(at, bytes, physical, true)
    }

    fn unmap(table: &mut Table<u64>, at: u64, bytes: u64) -> Vec<u64> {
        let ended = table.unmap(at, bytes);
        table.unmapped(&ended)
    }

    #[test]
    fn physical_memory_lives_as_long_as_its_last_reference() {
        let mut table = Table::new();
        assert_eq!(table.create(7, 70), None);
        assert_eq!((map(&mut table, PAGE, PAGE, 7), map(&mut table, 4 * PAGE, PAGE, 7)), (None, None));
        assert_eq!(release(&mut table, 7), None, "it is mapped");
        assert_eq!(release(&mut table, 7), None, "there is no such handle any more");
        assert_eq!(unmap(&mut table, PAGE, PAGE), NOTHING);
        table.retain(9, 4 * PAGE + 17);
        assert_eq!(unmap(&mut table, 4 * PAGE, PAGE), NOTHING, "another handle keeps it");
        assert_eq!(release(&mut table, 9), Some(70));
        assert!(table.is_empty());
    }

    #[test]
    fn a_handle_may_be_released_while_it_is_mapped() {
        let mut table = Table::new();
        for (handle, is_mapped) in [(7, true), (8, false)] {
            table.create(handle, 10 * handle);
            let physical = table.begin_map(handle).unwrap();
            assert_eq!(release(&mut table, handle), None);
            let gone = (!is_mapped).then_some(10 * handle);
            assert_eq!(table.end_map(handle * PAGE, PAGE, physical, is_mapped), gone);
        }
        assert_eq!(unmap(&mut table, 0, 9 * PAGE), [70]);
        assert!(table.is_empty());
    }

    #[test]
    fn a_handle_that_was_given_twice_is_released_twice() {
        let mut table = Table::new();
        table.create(7, 70);
        map(&mut table, 0, PAGE, 7);
        table.retain(7, 0);
        table.import(7);
        table.import(8);
        assert_eq!(unmap(&mut table, 0, PAGE), NOTHING);
        let ends: Vec<_> = (0..4).map(|_| release(&mut table, 7)).collect();
        assert_eq!(ends, [None, None, Some(70), None]);
        assert_eq!(release(&mut table, 8), None, "it is memory of another process");
        assert!(table.is_empty());
    }

    #[test]
    fn what_the_driver_refuses_is_as_before() {
        let mut table = Table::new();
        table.create(7, 70);
        let released = table.release(7).unwrap();
        table.keep(released);
        map(&mut table, PAGE, PAGE, 7);
        let mappings = table.unmap(0, 4 * PAGE);
        assert_eq!(mappings.len(), 1);
        table.keep_mapped(mappings);
        assert_eq!(release(&mut table, 7), None);
        assert_eq!(unmap(&mut table, PAGE, PAGE), [70]);
        assert!(table.is_empty());
    }

    #[test]
    fn only_whole_mappings_of_a_range_end() {
        let mut table = Table::new();
        for handle in 1..=3 {
            table.create(handle, handle);
            map(&mut table, handle * 4 * PAGE, 4 * PAGE, handle);
            assert_eq!(release(&mut table, handle), None);
        }
        assert_eq!(unmap(&mut table, 5 * PAGE, 8 * PAGE), [2], "the first and the last lie there in part");
        assert_eq!(unmap(&mut table, u64::MAX, 2), NOTHING, "there is no such range");
        assert_eq!(unmap(&mut table, 0, u64::MAX), [1, 3]);
        assert!(table.is_empty());
    }

    #[test]
    fn what_the_driver_gives_out_again_was_given_back() {
        let mut table = Table::new();
        table.create(7, 70);
        map(&mut table, PAGE, PAGE, 7);
        assert_eq!(table.create(7, 71), None, "its mapping keeps the first");
        assert_eq!(map(&mut table, PAGE, PAGE, 7), Some(70));
        assert_eq!((table.allocate(1, 10), table.allocate(1, 11), table.free(1)), (None, Some(10), Some(11)));
        assert_eq!(release(&mut table, 7), None);
        assert_eq!(unmap(&mut table, PAGE, PAGE), [71]);
        assert!(table.is_empty());
    }

    #[test]
    fn a_reset_takes_the_memory_of_one_device() {
        let mut table = Table::new();
        for device in 0..2 {
            table.allocate(device, device);
            table.create(10 + device, device);
            map(&mut table, device * PAGE, PAGE, 10 + device);
        }
        assert_eq!(table.forget(false, |of| *of == 0), [0], "physical memory is of no context");
        assert_eq!(table.forget(true, |of| *of == 0), [0]);
        assert_eq!((release(&mut table, 10), unmap(&mut table, 0, PAGE)), (None, Vec::new()));
        assert_eq!((release(&mut table, 11), unmap(&mut table, PAGE, PAGE), table.free(1)), (None, vec![1], Some(1)));
        assert!(table.is_empty());
    }

    /// The shortest of some times that `count` handles take from creation to release.
    fn time_of(count: u64) -> Duration {
        let times = (0..5).map(|_| {
            let (mut table, begin) = (Table::new(), Instant::now());
            for handle in 0..count {
                table.create(handle * 16, handle);
                map(&mut table, handle * PAGE, PAGE, handle * 16);
            }
            for handle in 0..count {
                assert_eq!(release(&mut table, handle * 16), None);
            }
            assert_eq!(unmap(&mut table, 0, count * PAGE).len() as u64, count);
            begin.elapsed()
        });
        times.min().unwrap()
    }

    #[test]
    fn twice_the_handles_cost_about_twice_the_time() {
        let (once, eightfold) = (time_of(4_000), time_of(32_000));
        assert!(eightfold < 20 * once, "{once:?} and {eightfold:?}; 64 times if each were compared with each");
    }
}

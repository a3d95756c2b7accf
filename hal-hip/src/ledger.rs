//! The reservations and mappings, tracked here because drivers before 7.14 do not report mistakes.
//!
//! They report success for a map over a mapping and for a failed map, and crash when unmapped addresses are unmapped.
//! So a call that contradicts the ledger does not reach the driver. The ledger is never locked during a driver call:
//! mappings that the call changes are marked as busy instead.

use std::collections::BTreeMap;
use std::mem;

use cachette_hal::{ErrorKind, Guarded};

use crate::types::MemAccessDesc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingState {
    /// A call is changing it.
    Busy,
    /// The driver has said that exactly this range is mapped.
    Mapped,
    /// The driver did not say what is mapped here. Nothing else is mapped in the range until it does.
    Unknown,
    /// An unmap has reported success, but the driver has not said that nothing is mapped here. It is not unmapped again,
    /// since the driver has given up the mapping's reference to the backing.
    Ended,
}

#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    state: MappingState,
    /// The last rights set, one for each device.
    rights: Vec<MemAccessDesc>,
}

impl Mapping {
    const fn is_unknown(&self) -> bool {
        matches!(self.state, MappingState::Unknown | MappingState::Ended)
    }

    /// The rights to restore for the devices in `changed`.
    pub(crate) fn before(&self, changed: &[MemAccessDesc]) -> Vec<MemAccessDesc> {
        let before = |change: &MemAccessDesc| {
            let known = self.rights.iter().find(|right| right.location == change.location);
            let nothing = MemAccessDesc { flags: 0, ..*change };
            known.copied().unwrap_or(nothing)
        };
        changed.iter().map(before).collect()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger(Guarded<State>);

#[derive(Clone, Copy, Debug)]
struct Reserved {
    bytes: u64,
    /// Whether the driver has refused to release it. It no longer knows it then, and a second release crashes some
    /// versions.
    is_refused: bool,
}

#[derive(Debug, Default)]
struct State {
    /// By address.
    reservations: BTreeMap<u64, Reserved>,
    /// Mappings by address; they lie inside reservations and do not overlap.
    mappings: BTreeMap<u64, Mapping>,
}

impl State {
    fn overlaps(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return true };
        self.mappings.range(..end).next_back().is_some_and(|(start, mapping)| start + mapping.bytes > at)
    }

    fn is_reserved(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        self.reservations.range(..=at).next_back().is_some_and(|(start, reserved)| start + reserved.bytes >= end)
    }
}

impl Ledger {
    pub(crate) fn reserve(&self, start: u64, bytes: u64) {
        self.0.lock().reservations.insert(start, Reserved { bytes, is_refused: false });
    }

    /// Enters a reservation again that the driver refused to release.
    pub(crate) fn refuse_release(&self, start: u64, bytes: u64) {
        self.0.lock().reservations.insert(start, Reserved { bytes, is_refused: true });
    }

    /// Removes a reservation. Fails with an invalid value if there is no such one, or something is mapped in it, and
    /// otherwise if the driver has refused to release it before.
    pub(crate) fn begin_release(&self, start: u64, bytes: u64) -> Result<(), ErrorKind> {
        let mut state = self.0.lock();
        let found = state.reservations.get(&start).filter(|found| found.bytes == bytes).copied();
        let found = found.filter(|_| !state.overlaps(start, bytes)).ok_or(ErrorKind::InvalidValue)?;
        if found.is_refused {
            return Err(ErrorKind::Other);
        }
        state.reservations.remove(&start);
        Ok(())
    }

    /// Enters a mapping as busy; `false` if the range is not reserved or not free.
    pub(crate) fn begin_map(&self, at: u64, bytes: u64) -> bool {
        let mut state = self.0.lock();
        let free = state.is_reserved(at, bytes) && !state.overlaps(at, bytes);
        if free {
            let mapping = Mapping { bytes, state: MappingState::Busy, rights: Vec::new() };
            state.mappings.insert(at, mapping);
        }
        free
    }

    /// Marks a mapping as busy and returns its state; `None` if the range is not exactly one mapping, or another call is
    /// changing it.
    pub(crate) fn begin_unmap(&self, at: u64, bytes: u64) -> Option<MappingState> {
        let mut state = self.0.lock();
        let mapping = state.mappings.get_mut(&at)?;
        if mapping.bytes != bytes || mapping.state == MappingState::Busy {
            return None;
        }
        Some(mem::replace(&mut mapping.state, MappingState::Busy))
    }

    /// Completes a change of a busy mapping: it has a state, or is gone.
    pub(crate) fn end(&self, at: u64, found: Option<MappingState>) {
        let mut state = self.0.lock();
        match (found, state.mappings.get_mut(&at)) {
            (Some(found), Some(mapping)) => mapping.state = found,
            (_, _) => {
                state.mappings.remove(&at);
            }
        }
    }

    /// The adjacent mappings that cover exactly this range; `None` if there are none, or one of them is not certain.
    pub(crate) fn mappings(&self, at: u64, bytes: u64) -> Option<Vec<(u64, Mapping)>> {
        let end = at.checked_add(bytes)?;
        let state = self.0.lock();
        let (mut next, mut found) = (at, Vec::new());
        while next < end {
            let mapping = state.mappings.get(&next).filter(|mapping| mapping.state == MappingState::Mapped)?;
            found.push((next, mapping.clone()));
            next += mapping.bytes;
        }
        (next == end && !found.is_empty()).then_some(found)
    }

    /// Whether a mapping that the driver is not sure of lies in this range.
    pub(crate) fn is_unknown(&self, at: u64, bytes: u64) -> bool {
        let state = self.0.lock();
        let mut mappings = state.mappings.range(at..at.saturating_add(bytes));
        mappings.any(|(_, mapping)| mapping.is_unknown())
    }

    /// Whether the range is exactly one mapping with these rights, which the driver is not sure of.
    pub(crate) fn is_unknown_with(&self, at: u64, bytes: u64, rights: &[MemAccessDesc]) -> bool {
        let state = self.0.lock();
        let found = state.mappings.get(&at).filter(|mapping| mapping.bytes == bytes && mapping.is_unknown());
        found.is_some_and(|mapping| rights.iter().all(|right| mapping.rights.contains(right)))
    }

    /// Notes the rights that the driver has set.
    pub(crate) fn granted(&self, at: u64, access: &[MemAccessDesc]) {
        let mut state = self.0.lock();
        let Some(mapping) = state.mappings.get_mut(&at) else { return };
        for change in access {
            mapping.rights.retain(|right| right.location != change.location);
            mapping.rights.push(*change);
        }
    }

    /// Whether the address lies in a reservation.
    pub(crate) fn holds(&self, address: u64) -> bool {
        self.0.lock().is_reserved(address, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: MemAccessDesc = MemAccessDesc { location: crate::types::MemLocation { kind: 1, id: 0 }, flags: 3 };

    fn ledger() -> Ledger {
        let ledger = Ledger::default();
        ledger.reserve(0x1000, 0x4000);
        ledger
    }

    fn map(ledger: &Ledger, at: u64, bytes: u64) {
        assert!(ledger.begin_map(at, bytes));
        ledger.end(at, Some(MappingState::Mapped));
    }

    #[test]
    fn only_reserved_and_free_addresses_are_mapped() {
        let ledger = ledger();
        for (at, bytes) in [(0, 0x1000), (0x4000, 0x2000), (0x5000, 0x1000), (0x2000, u64::MAX)] {
            assert!(!ledger.begin_map(at, bytes), "{at:#x}+{bytes:#x}");
        }
        map(&ledger, 0x2000, 0x1000);
        for (at, bytes) in [(0x2000, 0x1000), (0x1000, 0x2000), (0x2800, 0x800)] {
            assert!(!ledger.begin_map(at, bytes), "{at:#x}+{bytes:#x}");
        }
        map(&ledger, 0x1000, 0x1000);
    }

    #[test]
    fn a_map_that_failed_leaves_the_range_free() {
        let ledger = ledger();
        assert!(ledger.begin_map(0x1000, 0x1000));
        ledger.end(0x1000, None);
        map(&ledger, 0x1000, 0x2000);
    }

    #[test]
    fn only_whole_mappings_are_unmapped_and_one_at_a_time() {
        let ledger = ledger();
        map(&ledger, 0x1000, 0x1000);
        map(&ledger, 0x2000, 0x1000);
        for (at, bytes) in [(0x1000, 0x2000), (0x1000, 0x800), (0x1800, 0x800)] {
            assert_eq!(ledger.begin_unmap(at, bytes), None, "{at:#x}+{bytes:#x}");
        }
        assert_eq!(ledger.begin_unmap(0x1000, 0x1000), Some(MappingState::Mapped));
        assert_eq!(ledger.begin_unmap(0x1000, 0x1000), None, "it is busy");
        ledger.end(0x1000, None);
        assert_eq!(ledger.begin_unmap(0x1000, 0x1000), None, "it is gone");
    }

    #[test]
    fn addresses_in_an_unknown_state_are_neither_mapped_nor_granted_but_unmapped() {
        let ledger = ledger();
        map(&ledger, 0x1000, 0x1000);
        assert!(ledger.begin_map(0x2000, 0x1000));
        ledger.end(0x2000, Some(MappingState::Unknown));
        assert!(!ledger.begin_map(0x2000, 0x1000));
        assert!(ledger.mappings(0x1000, 0x2000).is_none());
        assert!(ledger.is_unknown(0x1000, 0x2000) && !ledger.is_unknown(0x1000, 0x1000));
        assert_eq!(ledger.begin_release(0x1000, 0x4000), Err(ErrorKind::InvalidValue));
        for _ in 0..2 {
            assert_eq!(ledger.begin_unmap(0x2000, 0x1000), Some(MappingState::Unknown), "it can be tried again");
            ledger.end(0x2000, Some(MappingState::Unknown));
        }
        ledger.end(0x2000, None);
        map(&ledger, 0x2000, 0x1000);
    }

    #[test]
    fn rights_are_set_for_whole_mappings_that_no_other_call_changes() {
        let ledger = ledger();
        map(&ledger, 0x1000, 0x1000);
        map(&ledger, 0x2000, 0x1000);
        ledger.granted(0x1000, &[RIGHT]);
        let found = ledger.mappings(0x1000, 0x2000).unwrap();
        assert_eq!(found[0].1.before(&[RIGHT])[0].flags, 3);
        assert_eq!(found[1].1.before(&[RIGHT])[0].flags, 0);
        assert!(ledger.mappings(0x1000, 0x1800).is_none());
        assert!(ledger.mappings(0x3000, 0x1000).is_none());
        assert_eq!(ledger.begin_unmap(0x2000, 0x1000), Some(MappingState::Mapped));
        assert!(ledger.mappings(0x1000, 0x2000).is_none(), "another thread unmaps one of them");
    }

    #[test]
    fn a_reservation_goes_whole_and_empty() {
        let (ledger, invalid) = (ledger(), Err(ErrorKind::InvalidValue));
        map(&ledger, 0x3000, 0x1000);
        assert_eq!(ledger.begin_release(0x1000, 0x4000), invalid, "something is mapped");
        assert_eq!(ledger.begin_unmap(0x3000, 0x1000), Some(MappingState::Mapped));
        assert_eq!(ledger.begin_release(0x1000, 0x4000), invalid, "it is being unmapped");
        ledger.end(0x3000, None);
        assert_eq!(ledger.begin_release(0x1000, 0x2000), invalid, "a part");
        assert!(ledger.holds(0x4fff));
        assert_eq!(ledger.begin_release(0x1000, 0x4000), Ok(()));
        assert!(!ledger.holds(0x4fff));
    }

    #[test]
    fn a_reservation_that_the_driver_refused_to_release_is_not_released_again() {
        let ledger = ledger();
        assert_eq!(ledger.begin_release(0x1000, 0x4000), Ok(()));
        ledger.refuse_release(0x1000, 0x4000);
        assert_eq!(ledger.begin_release(0x1000, 0x2000), Err(ErrorKind::InvalidValue));
        assert_eq!(ledger.begin_release(0x1000, 0x4000), Err(ErrorKind::Other));
        assert!(ledger.holds(0x1000));
    }
}

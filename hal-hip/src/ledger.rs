//! The reservations and mappings, tracked here because drivers before 7.14 do not report mistakes.
//!
//! They report success for a map over a mapping and for a failed map, and crash when unmapped addresses are unmapped.
//! So a call that contradicts the ledger does not reach the driver. The ledger is never locked during a driver call:
//! mappings that the call changes are marked as busy instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::types::MemAccessDesc;

/// How certain a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A call is changing it.
    Busy,
    /// The driver reported success, which older ones always do.
    Unproven,
    /// The driver has set its rights, which fails for unmapped addresses.
    Proven,
    /// The driver has refused to set its rights: nothing is mapped.
    Refused,
}

/// One mapping.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) proof: Proof,
    /// The last rights set, one for each device.
    pub(crate) rights: Vec<MemAccessDesc>,
}

impl Mapping {
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

/// The reservations and mappings.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Sizes by address.
    reservations: BTreeMap<u64, u64>,
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
        self.reservations.range(..=at).next_back().is_some_and(|(start, reserved)| start + reserved >= end)
    }
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a reservation.
    pub(crate) fn reserve(&self, start: u64, bytes: u64) {
        self.state().reservations.insert(start, bytes);
    }

    /// Removes a reservation; `false` if there is no such one, or something is mapped in it.
    pub(crate) fn begin_release(&self, start: u64, bytes: u64) -> bool {
        let mut state = self.state();
        let free = state.reservations.get(&start) == Some(&bytes) && !state.overlaps(start, bytes);
        if free {
            state.reservations.remove(&start);
        }
        free
    }

    /// Enters a mapping as busy; `false` if the range is not reserved or not free.
    pub(crate) fn begin_map(&self, at: u64, bytes: u64) -> bool {
        let mut state = self.state();
        let free = state.is_reserved(at, bytes) && !state.overlaps(at, bytes);
        if free {
            let mapping = Mapping { bytes, proof: Proof::Busy, rights: Vec::new() };
            state.mappings.insert(at, mapping);
        }
        free
    }

    /// Completes [`begin_map`](Self::begin_map).
    pub(crate) fn end_map(&self, at: u64, mapped: bool) {
        let mut state = self.state();
        if !mapped {
            state.mappings.remove(&at);
        } else if let Some(mapping) = state.mappings.get_mut(&at) {
            mapping.proof = Proof::Unproven;
        }
    }

    /// Marks a mapping as busy and returns its proof; `None` if the range is not exactly one mapping.
    pub(crate) fn begin_unmap(&self, at: u64, bytes: u64) -> Option<Proof> {
        let mut state = self.state();
        let mapping = state.mappings.get_mut(&at)?;
        if mapping.bytes != bytes || mapping.proof == Proof::Busy {
            return None;
        }
        Some(std::mem::replace(&mut mapping.proof, Proof::Busy))
    }

    /// Completes [`begin_unmap`](Self::begin_unmap): the mapping is gone, or has its proof back.
    pub(crate) fn end_unmap(&self, at: u64, kept: Option<Proof>) {
        let mut state = self.state();
        match kept {
            None => {
                state.mappings.remove(&at);
            }
            Some(proof) => {
                if let Some(mapping) = state.mappings.get_mut(&at) {
                    mapping.proof = proof;
                }
            }
        }
    }

    /// The adjacent mappings that cover exactly this range; `None` if there are none.
    pub(crate) fn mappings(&self, at: u64, bytes: u64) -> Option<Vec<(u64, Mapping)>> {
        let end = at.checked_add(bytes)?;
        let state = self.state();
        let (mut next, mut found) = (at, Vec::new());
        while next < end {
            let mapping = state.mappings.get(&next)?;
            if mapping.proof == Proof::Busy {
                return None;
            }
            found.push((next, mapping.clone()));
            next += mapping.bytes;
        }
        (next == end && !found.is_empty()).then_some(found)
    }

    /// Notes that the driver has set the rights, which proves the mapping.
    pub(crate) fn granted(&self, at: u64, access: &[MemAccessDesc]) {
        let mut state = self.state();
        let Some(mapping) = state.mappings.get_mut(&at) else { return };
        mapping.proof = Proof::Proven;
        for change in access {
            mapping.rights.retain(|right| right.location != change.location);
            mapping.rights.push(*change);
        }
    }

    /// Notes that the driver has refused the rights: an unproven mapping does not exist.
    pub(crate) fn refused(&self, at: u64) {
        if let Some(mapping) = self.state().mappings.get_mut(&at)
            && mapping.proof == Proof::Unproven
        {
            mapping.proof = Proof::Refused;
        }
    }

    /// Whether the address lies in a reservation.
    pub(crate) fn holds(&self, address: u64) -> bool {
        self.state().is_reserved(address, 1)
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
        ledger.end_map(at, true);
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
        ledger.end_map(0x1000, false);
        map(&ledger, 0x1000, 0x2000);
    }

    #[test]
    fn only_whole_mappings_are_unmapped_and_one_at_a_time() {
        let ledger = ledger();
        map(&ledger, 0x1000, 0x1000);
        map(&ledger, 0x2000, 0x1000);
        assert_eq!(ledger.begin_unmap(0x1000, 0x2000), None);
        assert_eq!(ledger.begin_unmap(0x1000, 0x800), None);
        assert_eq!(ledger.begin_unmap(0x1800, 0x800), None);
        assert_eq!(ledger.begin_unmap(0x1000, 0x1000), Some(Proof::Unproven));
        assert_eq!(ledger.begin_unmap(0x1000, 0x1000), None, "it is busy");
        ledger.end_unmap(0x1000, None);
        assert_eq!(ledger.begin_unmap(0x1000, 0x1000), None, "it is gone");
    }

    #[test]
    fn rights_prove_a_mapping_and_their_refusal_disproves_only_the_unproven() {
        let ledger = ledger();
        map(&ledger, 0x1000, 0x1000);
        map(&ledger, 0x2000, 0x1000);
        ledger.granted(0x1000, &[RIGHT]);
        ledger.refused(0x1000);
        ledger.refused(0x2000);
        let found = ledger.mappings(0x1000, 0x2000).unwrap();
        assert_eq!(found[0].1.proof, Proof::Proven);
        assert_eq!(found[0].1.rights, [RIGHT]);
        assert_eq!(found[1].1.proof, Proof::Refused);
        assert_eq!(found[1].1.before(&[RIGHT])[0].flags, 0);
        assert!(ledger.mappings(0x1000, 0x1800).is_none());
        assert!(ledger.mappings(0x3000, 0x1000).is_none());
    }

    #[test]
    fn a_reservation_goes_whole_and_empty() {
        let ledger = ledger();
        map(&ledger, 0x3000, 0x1000);
        assert!(!ledger.begin_release(0x1000, 0x4000), "something is mapped");
        assert_eq!(ledger.begin_unmap(0x3000, 0x1000), Some(Proof::Unproven));
        assert!(!ledger.begin_release(0x1000, 0x4000), "it is being unmapped");
        ledger.end_unmap(0x3000, None);
        assert!(!ledger.begin_release(0x1000, 0x2000), "a part");
        assert!(ledger.holds(0x4fff));
        assert!(ledger.begin_release(0x1000, 0x4000));
        assert!(!ledger.holds(0x4fff));
    }
}

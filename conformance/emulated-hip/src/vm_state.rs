//! What is reserved, made and mapped, as AMD's library keeps it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::prelude::*;

/// Pages, of which everything is a multiple.
pub(crate) const PAGE: u64 = 4 << 10;

#[derive(Clone, Debug)]
pub(crate) enum Physical {
    /// Memory of the device beneath, by its handle there.
    Made(usize),
    /// A descriptor whose size only the first map tells.
    Imported(Arc<OwnedFd>),
}

#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) device: usize,
    /// Zero where it is not known yet.
    pub(crate) bytes: u64,
    pub(crate) is_shareable: bool,
    pub(crate) references: u32,
    pub(crate) physical: Physical,
}

#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) handle: BackingHandle,
    pub(crate) device: usize,
    /// Whether it is of a part of its handle, which the device beneath cannot map.
    pub(crate) is_part: bool,
    /// Whether an unmap has failed, and given up the mapping's reference to the handle.
    pub(crate) is_stuck: bool,
    pub(crate) rights: BTreeMap<usize, c_int>,
}

/// An entry of the list in which the library keeps the mappings of a reservation.
#[derive(Clone, Copy, Debug)]
struct Listed {
    at: u64,
    bytes: u64,
    /// Its place in the list, which follows neither addresses nor time.
    place: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    /// Whether it can never be released.
    pub(crate) is_spoiled: bool,
    /// Whether a release has failed, so that the library no longer knows it.
    pub(crate) is_lost: bool,
}

#[derive(Debug, Default)]
pub(crate) struct VmState {
    pub(crate) reservations: BTreeMap<u64, Reservation>,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) handles: HashMap<BackingHandle, Handle>,
    /// The lists of the reservations, by their start.
    lists: BTreeMap<u64, Vec<Listed>>,
    /// How many entries were ever listed.
    listed: u64,
}

impl VmState {
    /// The mapping that an address lies in.
    pub(crate) fn mapping_of(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((*start, mapping))
    }

    pub(crate) fn overlaps(&self, at: u64, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        self.mappings.range(..end).next_back().is_some_and(|(start, mapping)| start + mapping.bytes > at)
    }

    /// The reservation that a range lies in.
    pub(crate) fn reservation_of(&self, at: u64, bytes: u64) -> Option<(u64, Reservation)> {
        let end = at.checked_add(bytes)?;
        let (start, found) = self.reservations.range(..=at).next_back()?;
        (start + found.bytes >= end && !found.is_lost).then_some((*start, *found))
    }

    /// Enters a mapping into the list of its reservation, also one that failed inside.
    pub(crate) fn list(&mut self, at: u64, bytes: u64) {
        let Some((start, _)) = self.reservation_of(at, bytes) else { return };
        self.listed += 1;
        // The library's list is ordered by the addresses of its own objects: any order will do that is no order.
        let place = self.listed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.lists.entry(start).or_default().push(Listed { at, bytes, place });
    }

    /// Takes a mapping off the list.
    pub(crate) fn unlist(&mut self, at: u64, bytes: u64) {
        let Some((start, _)) = self.reservation_of(at, 1) else { return };
        let Some(list) = self.lists.get_mut(&start) else { return };
        if let Some(index) = list.iter().rposition(|listed| (listed.at, listed.bytes) == (at, bytes)) {
            list.remove(index);
        }
    }

    pub(crate) fn forget_list(&mut self, start: u64) {
        self.lists.remove(&start);
    }

    /// Whether some first entries of the list around an address have exactly this size together.
    pub(crate) fn adds_up(&self, at: u64, bytes: u64) -> bool {
        let list = self.reservation_of(at, 1).and_then(|(start, _)| self.lists.get(&start));
        let mut list = list.cloned().unwrap_or_default();
        list.sort_by_key(|listed| listed.place);
        let sums = list.iter().scan(0, |sum, listed| {
            *sum += listed.bytes;
            Some(*sum)
        });
        sums.into_iter().any(|sum| sum == bytes)
    }

    /// Starts of the mappings that make up exactly this range; `None` if they do not.
    pub(crate) fn whole(&self, at: u64, bytes: u64) -> Option<Vec<u64>> {
        let starts = self.touched(at, bytes)?;
        let last = starts.last()?;
        let end = last + self.mappings.get(last)?.bytes;
        (starts.first() == Some(&at) && end == at + bytes).then_some(starts)
    }

    /// Starts of the mappings that a range touches; `None` if a byte of it is not mapped.
    pub(crate) fn touched(&self, at: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = at.checked_add(bytes)?;
        let (mut next, mut starts) = (at, Vec::new());
        while next < end {
            let (start, mapping) = self.mapping_of(next)?;
            starts.push(start);
            next = start + mapping.bytes;
        }
        Some(starts)
    }
}

//! What is reserved, made and mapped, as AMD's library keeps it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::prelude::*;

/// Pages, of which everything is a multiple.
pub(crate) const PAGE: u64 = 4 << 10;

/// Physical memory behind a handle.
#[derive(Clone, Debug)]
pub(crate) enum Physical {
    /// Memory of the device beneath, by its handle there.
    Made(usize),
    /// A descriptor whose size only the first map tells.
    Imported(Arc<OwnedFd>),
}

/// One handle of physical memory.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) device: usize,
    /// Zero where it is not known yet.
    pub(crate) bytes: u64,
    pub(crate) is_shareable: bool,
    pub(crate) references: u32,
    pub(crate) physical: Physical,
}

/// One mapping.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) handle: BackingHandle,
    pub(crate) device: usize,
    /// Whether it is of a part of its handle, which the device beneath cannot map.
    pub(crate) is_part: bool,
    /// Devices that may touch it.
    pub(crate) users: BTreeSet<usize>,
}

/// One reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    /// Whether it can never be released.
    pub(crate) is_spoiled: bool,
}

/// What is reserved, made and mapped.
#[derive(Debug, Default)]
pub(crate) struct VmState {
    pub(crate) reservations: BTreeMap<u64, Reservation>,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) handles: HashMap<BackingHandle, Handle>,
}

impl VmState {
    /// The mapping that an address lies in.
    pub(crate) fn mapping_of(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((*start, mapping))
    }

    /// Whether something is mapped in a range.
    pub(crate) fn overlaps(&self, at: u64, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        self.mappings.range(..end).next_back().is_some_and(|(start, mapping)| start + mapping.bytes > at)
    }

    /// The reservation that a range lies in.
    pub(crate) fn reservation_of(&self, at: u64, bytes: u64) -> Option<(u64, Reservation)> {
        let end = at.checked_add(bytes)?;
        let (start, found) = self.reservations.range(..=at).next_back()?;
        (start + found.bytes >= end).then_some((*start, *found))
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

//! The table of addresses: the memory at each, its device, and the access rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::io::Errno;

use crate::addresses::Addresses;
use crate::backing::BackingMemory;
use crate::extent::Extent;
use crate::mapping::Region;
use crate::token::TokenKey;

/// One address space for all devices of a backend.
///
/// Neither `ranges` nor `reservations` overlap among themselves. A mapping lies wholly inside one reservation, and
/// nothing else lies inside any.
#[derive(Debug)]
pub(crate) struct Space {
    /// By first address.
    pub(crate) ranges: BTreeMap<u64, Range>,
    /// By first address.
    pub(crate) reservations: BTreeMap<u64, Reservation>,
    /// For each device, the devices whose allocations it may access, one bit each.
    reach: Vec<u64>,
    addresses: Addresses,
    phantom: bool,
}

/// Addresses with memory.
#[derive(Debug)]
pub(crate) struct Range {
    /// Never zero, unless a defect is planted.
    pub(crate) bytes: u64,
    /// The index of its device.
    pub(crate) owner: usize,
    pub(crate) kind: Kind,
}

/// The memory of a range.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Memory from `allocate`.
    Direct(Extent),
    /// Memory of the stream-ordered pool; `idle` while the pool holds it unused.
    Pooled {
        extent: Extent,
        /// Whether no device may access it.
        idle: bool,
    },
    /// A mapped backing.
    Mapping(Mapping),
    /// Page-locked host memory of the device.
    Pinned { _region: Region },
    /// Page-locked host memory of the caller.
    Registered,
    /// An allocation of another process.
    Opened {
        /// The memory; it is not accounted for in this process.
        extent: Extent,
        key: TokenKey,
        /// The number of times it is open; never zero.
        count: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) backing: Arc<BackingMemory>,
    /// Devices that may read, one bit each.
    pub(crate) readers: u64,
    /// Devices that may write, one bit each; a subset of `readers`.
    pub(crate) writers: u64,
}

/// Addresses reserved for mappings.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) bytes: u64,
    pub(crate) owner: usize,
    /// `None` if memory is phantom.
    pub(crate) region: Option<Region>,
    /// Pages that stay after an unmap, by address; none, unless a defect is planted.
    pub(crate) stale: BTreeMap<u64, u64>,
    /// Unmapped memory that is freed with the addresses; none, unless the device is configured to withhold it.
    pub(crate) withheld: Vec<Arc<BackingMemory>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    Write,
}

pub(crate) const fn bit(device: usize) -> u64 {
    1 << device
}

pub(crate) const fn set_bit(bits: &mut u64, device: usize, on: bool) {
    *bits = if on { *bits | bit(device) } else { *bits & !bit(device) };
}

impl Space {
    pub(crate) fn new(devices: usize, phantom: bool) -> Self {
        Self {
            ranges: BTreeMap::new(),
            reservations: BTreeMap::new(),
            reach: vec![0; devices],
            addresses: Addresses::new(phantom),
            phantom,
        }
    }

    /// Takes addresses, at `wish` if those are free. The region is `None` if memory is phantom.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        alignment: u64,
        wish: Option<u64>,
    ) -> Result<(u64, Option<Region>), Errno> {
        if self.phantom {
            let at = self.addresses.take(bytes, alignment, wish);
            return Ok((at.ok_or(Errno::NOMEM)?, None));
        }
        let wish = wish.or_else(|| self.addresses.take(bytes, alignment, None));
        let region = Region::reserve(bytes, alignment, wish)?;
        Ok((region.start(), Some(region)))
    }

    /// Whether the device may access every byte.
    pub(crate) fn permits(&self, device: usize, at: u64, bytes: u64, need: Need) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let mut next = at;
        while next < end {
            match self.containing(next) {
                Some((start, range)) if self.grants(range, device, need) => {
                    next = start + range.bytes;
                }
                _ => return false,
            }
        }
        true
    }

    fn grants(&self, range: &Range, device: usize, need: Need) -> bool {
        let reached = range.owner == device || self.reach[device] & bit(range.owner) != 0;
        match &range.kind {
            Kind::Direct(_) | Kind::Pooled { idle: false, .. } => reached,
            Kind::Pooled { idle: true, .. } => false,
            Kind::Mapping(mapping) => match need {
                Need::Read => mapping.readers & bit(device) != 0,
                Need::Write => mapping.writers & bit(device) != 0,
            },
            Kind::Pinned { .. } | Kind::Registered => true,
            Kind::Opened { .. } => range.owner == device,
        }
    }

    /// Returns the range that contains the address, with its start.
    pub(crate) fn containing(&self, at: u64) -> Option<(u64, &Range)> {
        let (start, range) = self.ranges.range(..=at).next_back()?;
        (at - start < range.bytes).then_some((*start, range))
    }

    /// Returns whether any range overlaps these addresses.
    pub(crate) fn overlaps(&self, at: u64, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        self.ranges.range(..end).next_back().is_some_and(|(start, range)| start + range.bytes > at)
    }

    /// Removes the range that starts here, if it belongs to this device and is `wanted`.
    pub(crate) fn remove(&mut self, at: u64, owner: usize, wanted: impl FnOnce(&Range) -> bool) -> Option<Range> {
        let range = self.ranges.get(&at)?;
        if range.owner != owner || !wanted(range) {
            return None;
        }
        let range = self.ranges.remove(&at)?;
        if let Some(extent) = range.kind.extent() {
            extent.give_back(&mut self.addresses);
        }
        Some(range)
    }

    /// Every range with its start, in order of address.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, &Range)> {
        self.ranges.iter().map(|(start, range)| (*start, range))
    }

    /// Returns the device's reservation that contains all these addresses.
    pub(crate) fn reservation(&self, at: u64, bytes: u64, owner: usize) -> Option<&Reservation> {
        let (start, reservation) = self.reservations.range(..=at).next_back()?;
        let end = at.checked_add(bytes)?;
        let holds = end <= start + reservation.bytes && reservation.owner == owner;
        holds.then_some(reservation)
    }

    /// Returns whether all mappings of the reservation around an address have one size.
    pub(crate) fn has_one_size(&self, at: u64) -> bool {
        let Some((start, reservation)) = self.reservations.range(..=at).next_back() else { return true };
        let mut sizes = self.ranges.range(*start..start + reservation.bytes).map(|(_, range)| range.bytes);
        let first = sizes.next();
        sizes.all(|size| Some(size) == first)
    }

    /// Returns the device's reservation that contains this address, for changes.
    pub(crate) fn reservation_mut(&mut self, at: u64, owner: usize) -> Option<&mut Reservation> {
        let (start, reservation) = self.reservations.range_mut(..=at).next_back()?;
        let holds = at < start + reservation.bytes && reservation.owner == owner;
        holds.then_some(reservation)
    }

    /// Returns whether the device has exactly this reservation.
    pub(crate) fn is_reservation(&self, at: u64, bytes: u64, owner: usize) -> bool {
        self.reservations.get(&at).is_some_and(|found| found.bytes == bytes && found.owner == owner)
    }

    /// Removes the reservation that starts here; `alignment` is that of its creation.
    pub(crate) fn release(&mut self, at: u64, alignment: u64) -> Option<Reservation> {
        let reservation = self.reservations.remove(&at)?;
        self.addresses.give_back(at, reservation.bytes, alignment);
        Some(reservation)
    }

    pub(crate) fn reservations_of(&self, owner: usize) -> usize {
        let own = |found: &&Reservation| found.owner == owner;
        self.reservations.values().filter(own).count()
    }

    /// Whether `device` may access the allocations of `peer`.
    pub(crate) fn reaches(&self, device: usize, peer: usize) -> bool {
        self.reach[device] & bit(peer) != 0
    }

    /// Sets whether `device` may access the allocations of `peer`.
    pub(crate) fn set_reach(&mut self, device: usize, peer: usize, reaches: bool) {
        set_bit(&mut self.reach[device], peer, reaches);
    }
}

impl Kind {
    const fn extent(&self) -> Option<&Extent> {
        match self {
            Self::Direct(extent) | Self::Pooled { extent, .. } | Self::Opened { extent, .. } => Some(extent),
            Self::Mapping(_) | Self::Pinned { .. } | Self::Registered => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(owner: usize, bytes: u64) -> Range {
        Range { bytes, owner, kind: Kind::Registered }
    }

    #[test]
    fn adjacent_ranges_are_one_to_an_access_and_a_gap_is_not() {
        let mut space = Space::new(1, false);
        space.ranges.insert(0x1000, direct(0, 0x1000));
        space.ranges.insert(0x2000, direct(0, 0x1000));
        space.ranges.insert(0x4000, direct(0, 0x1000));
        assert!(space.permits(0, 0x1800, 0x1000, Need::Write));
        assert!(space.permits(0, 0x1000, 0x2000, Need::Write));
        assert!(!space.permits(0, 0x2fff, 2, Need::Read));
        assert!(!space.permits(0, 0x1000, 0x4000, Need::Read));
        assert!(!space.permits(0, 0xfff, 1, Need::Read));
        assert!(!space.permits(0, u64::MAX, 2, Need::Read));
    }

    #[test]
    fn overlap_is_seen_from_both_sides() {
        let mut space = Space::new(1, false);
        space.ranges.insert(0x1000, direct(0, 0x1000));
        assert!(space.overlaps(0xfff, 2));
        assert!(space.overlaps(0x1fff, 1));
        assert!(space.overlaps(0x0, 0x10000));
        assert!(!space.overlaps(0x0, 0x1000));
        assert!(!space.overlaps(0x2000, 1));
    }
}

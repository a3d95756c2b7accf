//! The ranges of addresses that a call may use.

use super::ledger::{Ending, Entry, Finding, Key, Ledger, with_ended, with_entry};
use super::misuse::{Misuse, MisuseKind, Origin, Resource};
use cachette_hal::Call;

/// Memory that one driver call creates as a whole: a transfer stays inside one such range.
const WHOLE: [Resource; 4] =
    [Resource::Memory, Resource::StreamOrderedMemory, Resource::PinnedMemory, Resource::RegisteredMemory];

/// All memory that a transfer may access.
const REACHABLE: [Resource; 6] = [
    Resource::Memory,
    Resource::StreamOrderedMemory,
    Resource::PinnedMemory,
    Resource::RegisteredMemory,
    Resource::Mapping,
    Resource::OpenedMemory,
];

impl Ledger {
    /// Records a mapping before the driver call; fails if the range may not be mapped.
    pub(super) fn begin_map(&mut self, at: u64, bytes: u64, by: Origin) -> Finding {
        let misuse = |what| Misuse::of(what, by.call, Resource::Mapping, at, bytes);
        let home = self.containing(Resource::Reservation, at);
        let is_inside = |(key, entry): &(Key, &Entry)| entry.is_live() && bytes <= entry.bytes - (at - key.1);
        if !home.as_ref().is_some_and(is_inside) {
            let misuse = Misuse { resource: Resource::Reservation, ..misuse(MisuseKind::NotReserved) };
            return Err(self.describe_near(&[Resource::Reservation], misuse));
        }
        if let Some(key) = self.overlapping(Resource::Mapping, at, bytes).pop() {
            return Err(self.describe(key, misuse(MisuseKind::AlreadyMapped)));
        }
        self.note(Resource::Mapping, at, bytes, by);
        Ok(())
    }

    /// Marks one mapping as being ended; fails if the range is not exactly one.
    pub(super) fn begin_unmap(&mut self, at: u64, bytes: u64, by: Origin) -> Finding<Ending> {
        let (key, call) = ((Resource::Mapping, at), by.call);
        self.sized(call, key, bytes)?;
        self.begin_end(key, by).map_err(|misuse| {
            if misuse.what == MisuseKind::EndedTwice {
                return Box::new(Misuse { bytes, ..*misuse });
            }
            let what = MisuseKind::NotMapped;
            let misuse = Misuse::of(what, call, Resource::Mapping, at, bytes);
            self.describe_near(&[Resource::Mapping], misuse)
        })
    }

    /// Marks one reservation as being ended; fails if the range is not exactly one, or has mappings.
    pub(super) fn begin_release(&mut self, start: u64, bytes: u64, by: Origin) -> Finding<Ending> {
        let key = (Resource::Reservation, start);
        if self.live.get(&key).is_some_and(Entry::is_live) {
            self.sized(by.call, key, bytes)?;
            self.empty(by.call, start, bytes)?;
        }
        self.begin_end(key, by).map_err(|misuse| Box::new(Misuse { bytes, ..*misuse }))
    }

    /// Fails if a live resource starts there with another size.
    fn sized(&self, call: Call, key: Key, bytes: u64) -> Finding {
        match self.live.get(&key) {
            Some(entry) if entry.is_live() && entry.bytes != bytes => {
                let misuse = Misuse::of(MisuseKind::WrongSize, call, key.0, key.1, bytes);
                Err(self.describe(key, misuse))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the reservation contains a mapping.
    fn empty(&self, call: Call, start: u64, bytes: u64) -> Finding {
        match self.overlapping(Resource::Mapping, start, bytes).pop() {
            None => Ok(()),
            Some(key) => {
                let what = MisuseKind::StillMapped;
                let misuse = Misuse::of(what, call, Resource::Mapping, start, bytes);
                Err(self.describe(key, misuse))
            }
        }
    }

    /// Fails unless the range consists of adjacent whole mappings.
    pub(super) fn tiled(&self, call: Call, at: u64, bytes: u64) -> Finding {
        let mut rest = bytes;
        let mut next = at;
        while rest > 0 {
            let key = (Resource::Mapping, next);
            match self.live.get(&key).filter(|entry| entry.is_live()) {
                Some(entry) if entry.bytes <= rest => {
                    rest -= entry.bytes;
                    next += entry.bytes;
                }
                _ => {
                    let what = MisuseKind::NotMapped;
                    let misuse = Misuse::of(what, call, Resource::Mapping, at, bytes);
                    return Err(self.describe_near(&[Resource::Mapping], misuse));
                }
            }
        }
        Ok(())
    }

    /// Fails unless the range lies in live memory that the device may access.
    pub(super) fn reachable(&self, call: Call, at: u64, bytes: u64) -> Finding {
        if self.is_covered(at, bytes) {
            return Ok(());
        }
        let misuse = Misuse::of(MisuseKind::OutOfBounds, call, Resource::Memory, at, bytes);
        let misuse = self.describe_near(&REACHABLE, misuse);
        // A peer's memory is unknown here, and may have addresses that this device used before.
        let may_be_a_peers = misuse.size == 0 || misuse.ended.is_some();
        if may_be_a_peers && !self.peers.is_empty() {
            return Ok(());
        }
        Err(misuse)
    }

    /// Fails unless the address lies in live memory.
    pub(super) fn known(&self, call: Call, at: u64) -> Finding {
        self.reachable(call, at, 1).map_err(|misuse| {
            let what = match misuse.ended {
                Some(_) => MisuseKind::UsedAfterEnd,
                None => MisuseKind::Foreign,
            };
            Box::new(Misuse { what, bytes: 0, ..*misuse })
        })
    }

    /// Whether a range lies inside one piece of memory, or in adjacent mappings.
    fn is_covered(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let is_inside = |(key, entry): (Key, &Entry)| entry.is_live() && end - key.1 <= entry.bytes;
        WHOLE.iter().any(|&resource| self.containing(resource, at).is_some_and(is_inside))
            || self.is_mapped(at, end)
            || self.is_aliased(at, end)
            || self.may_be_opened(at, end)
    }

    fn is_mapped(&self, at: u64, end: u64) -> bool {
        let mut next = at;
        while next < end {
            match self.containing(Resource::Mapping, next) {
                Some((key, entry)) if entry.is_live() => next = key.1.saturating_add(entry.bytes),
                _ => return false,
            }
        }
        true
    }

    /// Whether a range lies in page-locked memory, by the addresses that the device uses for it.
    fn is_aliased(&self, at: u64, end: u64) -> bool {
        [Resource::PinnedMemory, Resource::RegisteredMemory]
            .into_iter()
            .flat_map(|resource| self.live.range((resource, 0)..=(resource, u64::MAX)))
            .filter(|(_, entry)| entry.is_live())
            .filter_map(|(_, entry)| Some((entry.alias?, entry.bytes)))
            .any(|(start, bytes)| start <= at && end - start <= bytes)
    }

    /// Whether a range may lie in opened memory.
    ///
    /// Its size is unknown, so it is assumed to end at the next known resource.
    fn may_be_opened(&self, at: u64, end: u64) -> bool {
        let resource = Resource::OpenedMemory;
        let Some(((_, start), entry)) = self.live.range((resource, 0)..=(resource, at)).next_back() else {
            return false;
        };
        let in_between = |kind: &Resource| {
            let mut things = self.live.range((*kind, start + 1)..(*kind, end));
            things.next().is_some()
        };
        entry.is_live() && !WHOLE.iter().chain(&[Resource::Reservation]).any(in_between)
    }

    /// Records the device address of page-locked memory.
    pub(super) fn note_alias(&mut self, host: u64, device: u64) {
        for resource in [Resource::PinnedMemory, Resource::RegisteredMemory] {
            let Some((key, _)) = self.containing(resource, host) else { continue };
            if let Some(entry) = self.live.get_mut(&key) {
                entry.alias = device.checked_sub(host - key.1);
            }
            return;
        }
    }

    fn describe(&self, key: Key, misuse: Misuse) -> Box<Misuse> {
        Box::new(match self.live.get(&key) {
            Some(entry) => with_entry(misuse, key, entry),
            None => misuse,
        })
    }

    /// Adds the facts about the live or ended resource that contains the subject.
    fn describe_near(&self, kinds: &[Resource], misuse: Misuse) -> Box<Misuse> {
        let at = misuse.subject;
        let found = kinds.iter().find_map(|&kind| self.containing(kind, at));
        if let Some((key, entry)) = found {
            return Box::new(with_entry(misuse, key, entry));
        }
        let lay_in = self.remembered(|ended| {
            let (resource, start) = ended.key;
            kinds.contains(&resource) && start <= at && at - start < ended.bytes.max(1)
        });
        Box::new(match lay_in {
            Some(ended) => with_ended(misuse, ended),
            None => misuse,
        })
    }
}

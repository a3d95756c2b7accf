//! The live and the recently ended resources of a device, with the calls that created them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::misuse::{Misuse, MisuseKind, Origin, Resource};
use cachette_hal::{Call, Ordinal, StreamRef};

const REMEMBERED: usize = 4096;

pub(super) type Finding<T = ()> = Result<T, Box<Misuse>>;

/// A resource by its kind and its handle or start address.
pub(super) type Key = (Resource, u64);

#[derive(Debug)]
pub(super) struct Entry {
    /// Zero for handles, and for opened memory, whose size is unknown.
    pub(super) bytes: u64,
    /// `None` for an adopted resource.
    pub(super) origin: Option<Origin>,
    /// The number of times it must be ended: drivers return the same handle when memory is opened or imported twice.
    holds: u32,
    /// The call in progress that ends it.
    pub(super) ending: Option<Origin>,
    /// The call that began a capture on it.
    pub(super) capture: Option<Origin>,
    /// The device address of page-locked memory, after its query.
    pub(super) alias: Option<u64>,
}

impl Entry {
    fn new(bytes: u64, origin: Option<Origin>) -> Self {
        Self { bytes, origin, holds: 1, ending: None, capture: None, alias: None }
    }

    /// Returns whether it may be used.
    pub(super) const fn is_live(&self) -> bool {
        self.ending.is_none()
    }
}

#[derive(Debug)]
pub(super) struct Ended {
    pub(super) key: Key,
    pub(super) bytes: u64,
    origin: Option<Origin>,
    by: Origin,
}

/// The right to end one resource, held during the driver call.
#[derive(Debug)]
#[must_use = "without `finish_end` the resource stays in the state of being ended"]
pub(super) struct Ending {
    key: Key,
    by: Origin,
    /// Whether the resource has other holders, so that it stays live.
    shared: bool,
}

/// The live and the recently ended resources of a device, with the calls that created them.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Live ranges of one kind never overlap, including mappings: an alias has separate addresses.
    pub(super) live: BTreeMap<Key, Entry>,
    /// The youngest at the end; at most [`REMEMBERED`].
    ended: VecDeque<Ended>,
    /// Devices whose memory this device may access. This ledger does not contain that memory.
    pub(super) peers: BTreeSet<Ordinal>,
    pub(super) misuses: Vec<Misuse>,
}

impl Ledger {
    /// Creates a ledger that contains only the default stream.
    pub(super) fn new() -> Self {
        let mut ledger =
            Self { live: BTreeMap::new(), ended: VecDeque::new(), peers: BTreeSet::new(), misuses: Vec::new() };
        ledger.adopt(StreamRef::DEFAULT);
        ledger
    }

    /// Records a stream that was created elsewhere, unless it is already known.
    pub(super) fn adopt(&mut self, stream: StreamRef) {
        self.live.entry((Resource::Stream, stream.raw() as u64)).or_insert_with(|| Entry::new(0, None));
    }

    /// Records a resource that the driver has just created.
    ///
    /// The driver may reuse a handle or an address before the call that ends its previous use has returned. An entry
    /// that is still being ended is therefore replaced.
    pub(super) fn note(&mut self, resource: Resource, number: u64, bytes: u64, origin: Origin) {
        let replaced = if ADDRESSED.contains(&resource) {
            self.overlapping(resource, number, bytes.max(1))
        } else {
            vec![(resource, number)]
        };
        for key in replaced {
            if self.live.get(&key).is_some_and(|entry| !entry.is_live()) {
                self.retire(key);
            }
        }
        let shareable = matches!(resource, Resource::OpenedMemory | Resource::Backing);
        match self.live.get_mut(&(resource, number)) {
            Some(entry) if shareable && entry.origin.is_some() => entry.holds += 1,
            _ => {
                let entry = Entry::new(bytes, Some(origin));
                self.live.insert((resource, number), entry);
            }
        }
    }

    /// Removes a record whose driver call failed.
    pub(super) fn undo_note(&mut self, key: Key, sequence: u64) {
        let is_ours = |entry: &Entry| entry.origin.as_ref().is_some_and(|o| o.sequence == sequence);
        if self.live.get(&key).is_some_and(is_ours) {
            self.live.remove(&key);
        }
    }

    pub(super) fn used(&self, call: Call, key: Key) -> Finding {
        if self.live.get(&key).is_some_and(Entry::is_live) {
            return Ok(());
        }
        let misuse = Misuse::of(MisuseKind::Foreign, call, key.0, key.1, 0);
        Err(self.describe_end(key, MisuseKind::UsedAfterEnd, misuse))
    }

    /// Marks a resource as being ended by `by`; fails if that is misuse.
    pub(super) fn begin_end(&mut self, key: Key, by: Origin) -> Finding<Ending> {
        let (resource, number) = key;
        let call = by.call;
        if let Some(entry) = self.live.get_mut(&key).filter(|entry| entry.is_live()) {
            if entry.origin.is_none() {
                let misuse = Misuse::of(MisuseKind::WrongCall, call, resource, number, 0);
                return Err(Box::new(misuse));
            }
            let shared = entry.holds > 1;
            if shared {
                entry.holds -= 1;
            } else {
                entry.ending = Some(by.clone());
            }
            return Ok(Ending { key, by, shared });
        }
        let misuse = Misuse::of(MisuseKind::Foreign, call, resource, number, 0);
        let misuse = self.describe_end(key, MisuseKind::EndedTwice, misuse);
        if misuse.what == MisuseKind::Foreign {
            return Err(self.describe_holder(misuse));
        }
        Err(misuse)
    }

    /// Completes an end: the resource is gone, or live again if the driver failed.
    pub(super) fn finish_end(&mut self, ending: Ending, is_ended: bool) {
        let Ending { key, by, shared } = ending;
        let Some(entry) = self.live.get_mut(&key) else { return };
        if shared {
            entry.holds += u32::from(!is_ended);
            return;
        }
        let is_ours = |ending: &Origin| ending.sequence == by.sequence;
        // A newer resource with the same handle or address may have replaced the entry.
        if !entry.ending.as_ref().is_some_and(is_ours) {
            return;
        }
        if is_ended {
            self.retire(key);
        } else {
            entry.ending = None;
        }
    }

    /// Fails if the stream is being captured. Does not check whether it is live.
    pub(super) fn not_captured(&self, call: Call, key: Key) -> Finding {
        let entry = self.live.get(&key).filter(|entry| entry.is_live());
        let Some(begun) = entry.and_then(|entry| entry.capture.clone()) else { return Ok(()) };
        let misuse = Misuse::of(MisuseKind::StillCaptured, call, key.0, key.1, 0);
        Err(Box::new(Misuse { origin: Some(begun), ..misuse }))
    }

    /// Removes the capture begun on a stream; fails if there is none.
    pub(super) fn take_capture(&mut self, call: Call, key: Key) -> Finding {
        self.used(call, key)?;
        let capture = self.live.get_mut(&key).map(|entry| entry.capture.take());
        match (capture, self.live.get(&key)) {
            (Some(None), Some(entry)) => {
                let misuse = Misuse::of(MisuseKind::NotCaptured, call, key.0, key.1, 0);
                Err(Box::new(with_entry(misuse, key, entry)))
            }
            _ => Ok(()),
        }
    }

    /// Moves a resource that is being ended to the list of ended ones.
    fn retire(&mut self, key: Key) {
        let Some(Entry { bytes, origin, ending: Some(by), .. }) = self.live.remove(&key) else { return };
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { key, bytes, origin, by });
    }

    /// Every live resource as a leak, except the adopted ones, which are ended elsewhere.
    pub(super) fn leaks(&self) -> Vec<Misuse> {
        let made_here = self.live.iter().filter(|(_, entry)| entry.origin.is_some());
        made_here
            .map(|(&(resource, number), entry)| {
                let what = MisuseKind::Leaked;
                let call = resource.ended_by();
                let misuse = Misuse::of(what, call, resource, number, entry.bytes);
                with_entry(misuse, (resource, number), entry)
            })
            .collect()
    }

    /// The keys of one kind of ranges that overlap `[start, start + bytes)`.
    pub(super) fn overlapping(&self, resource: Resource, start: u64, bytes: u64) -> Vec<Key> {
        let end = start.saturating_add(bytes);
        self.live
            .range((resource, 0)..(resource, end))
            .rev()
            // Ranges do not overlap: once one ends before `start`, so do all below it.
            .take_while(|((_, at), entry)| at.saturating_add(entry.bytes.max(1)) > start)
            .map(|(&key, _)| key)
            .collect()
    }

    /// Returns the range of one kind that contains an address.
    pub(super) fn containing(&self, resource: Resource, address: u64) -> Option<(Key, &Entry)> {
        let (&key, entry) = self.live.range((resource, 0)..=(resource, address)).next_back()?;
        (address - key.1 < entry.bytes.max(1)).then_some((key, entry))
    }

    /// Returns the youngest ended resource for which `is_it` holds.
    pub(super) fn remembered(&self, is_it: impl Fn(&Ended) -> bool) -> Option<&Ended> {
        self.ended.iter().rev().find(|ended| is_it(ended))
    }

    /// Turns `misuse` into `what` if the resource has ended, or is being ended.
    fn describe_end(&self, key: Key, what: MisuseKind, misuse: Misuse) -> Box<Misuse> {
        if let Some(entry) = self.live.get(&key) {
            return Box::new(with_entry(Misuse { what, ..misuse }, key, entry));
        }
        match self.remembered(|ended| ended.key == key) {
            Some(ended) => Box::new(with_ended(Misuse { what, ..misuse }, ended)),
            None => Box::new(misuse),
        }
    }

    /// Adds the known resource that contains the address of a foreign one, if any.
    fn describe_holder(&self, misuse: Box<Misuse>) -> Box<Misuse> {
        if !ADDRESSED.contains(&misuse.resource) {
            return misuse;
        }
        // The expected kind comes first: a reservation can begin at the same address as its first mapping.
        for resource in std::iter::once(misuse.resource).chain(ADDRESSED) {
            let Some((key, entry)) = self.containing(resource, misuse.subject) else { continue };
            let what = match (key.1 == misuse.subject, resource == misuse.resource) {
                (true, false) => MisuseKind::WrongCall,
                _ => MisuseKind::Interior,
            };
            return Box::new(with_entry(Misuse { what, ..*misuse }, key, entry));
        }
        misuse
    }
}

/// The kinds that are address ranges; a mapping comes before the reservation around it.
const ADDRESSED: [Resource; 7] = [
    Resource::Memory,
    Resource::StreamOrderedMemory,
    Resource::PinnedMemory,
    Resource::RegisteredMemory,
    Resource::OpenedMemory,
    Resource::Mapping,
    Resource::Reservation,
];

pub(super) fn with_entry(mut misuse: Misuse, key: Key, entry: &Entry) -> Misuse {
    (misuse.resource, misuse.start) = key;
    misuse.size = entry.bytes;
    misuse.origin.clone_from(&entry.origin);
    misuse.ended.clone_from(&entry.ending);
    misuse
}

pub(super) fn with_ended(mut misuse: Misuse, ended: &Ended) -> Misuse {
    (misuse.resource, misuse.start) = ended.key;
    misuse.size = ended.bytes;
    misuse.origin.clone_from(&ended.origin);
    misuse.ended = Some(ended.by.clone());
    misuse
}

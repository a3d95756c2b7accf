//! What is live on a device, what was, and where each came from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::misuse::{Misuse, MisuseKind, Origin, Resource};
use crate::{Call, Ordinal, StreamRef};

/// How many ended resources are remembered.
const REMEMBERED: usize = 4096;

/// What a check finds: nothing wrong, or one misuse.
pub(super) type Finding<T = ()> = Result<T, Box<Misuse>>;

/// A resource by its kind and its handle or start address.
pub(super) type Key = (Resource, u64);

/// One live resource.
#[derive(Debug)]
pub(super) struct Entry {
    /// Zero for handles, and for opened memory, whose size nobody tells.
    pub(super) bytes: u64,
    /// `None` for what was adopted.
    pub(super) origin: Option<Origin>,
    /// How often it must be ended: drivers give one handle again for what is opened or imported twice.
    holds: u32,
    /// The call that is ending it right now.
    pub(super) ending: Option<Origin>,
    /// The call that began a capture on it.
    pub(super) capture: Option<Origin>,
    /// The device's address of page-locked memory, where it was asked for.
    pub(super) alias: Option<u64>,
}

impl Entry {
    fn new(bytes: u64, origin: Option<Origin>) -> Self {
        Self { bytes, origin, holds: 1, ending: None, capture: None, alias: None }
    }

    /// Whether it may be used.
    pub(super) const fn is_live(&self) -> bool {
        self.ending.is_none()
    }
}

/// One resource that is no more.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) key: Key,
    pub(super) bytes: u64,
    origin: Option<Origin>,
    by: Origin,
}

/// The right to end one resource, held while the driver is asked.
#[derive(Debug)]
#[must_use = "an end that is not settled stays under way for ever"]
pub(super) struct Ending {
    key: Key,
    by: Origin,
    /// Whether others still hold the resource, so that it stays live.
    shared: bool,
}

/// What is live on a device, what was, and where each came from.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Ranges of one kind that are live do not overlap, mappings included: aliases have addresses of their own.
    pub(super) live: BTreeMap<Key, Entry>,
    /// The youngest at the back; at most [`REMEMBERED`].
    ended: VecDeque<Ended>,
    /// Devices whose memory this one may reach, and of which this ledger knows nothing.
    pub(super) peers: BTreeSet<Ordinal>,
    /// Every misuse so far, in order.
    pub(super) misuses: Vec<Misuse>,
}

impl Ledger {
    /// A ledger that knows the default stream alone.
    pub(super) fn new() -> Self {
        let mut ledger =
            Self { live: BTreeMap::new(), ended: VecDeque::new(), peers: BTreeSet::new(), misuses: Vec::new() };
        ledger.adopt(Resource::Stream, StreamRef::DEFAULT.raw() as u64, 0);
        ledger
    }

    /// Notes something made elsewhere, unless it is known already.
    pub(super) fn adopt(&mut self, resource: Resource, number: u64, bytes: u64) {
        self.live.entry((resource, number)).or_insert_with(|| Entry::new(bytes, None));
    }

    /// Notes something the driver has just made.
    ///
    /// The driver may reuse a number before the call that ends its last bearer has returned, so what is
    /// still being ended here gives way.
    pub(super) fn note(&mut self, resource: Resource, number: u64, bytes: u64, origin: Origin) {
        let replaced = if ADDRESSED.contains(&resource) {
            self.overlapping(resource, number, bytes.max(1))
        } else {
            vec![(resource, number)]
        };
        for key in replaced {
            if self.live.get(&key).is_some_and(|entry| !entry.is_live()) {
                self.bury(key);
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

    /// Takes back a note whose call failed after all.
    pub(super) fn strike(&mut self, key: Key, sequence: u64) {
        let is_ours = |entry: &Entry| entry.origin.as_ref().is_some_and(|o| o.sequence == sequence);
        if self.live.get(&key).is_some_and(is_ours) {
            self.live.remove(&key);
        }
    }

    /// Demands that a handle is live.
    pub(super) fn used(&self, call: Call, key: Key) -> Finding {
        if self.live.get(&key).is_some_and(Entry::is_live) {
            return Ok(());
        }
        let misuse = Misuse::of(MisuseKind::Foreign, call, key.0, key.1, 0);
        Err(self.describe_end(key, MisuseKind::UsedAfterEnd, misuse))
    }

    /// Demands that something may be ended by `by`, and marks it as being ended.
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

    /// Settles an end: the resource is gone, or it is as before where the driver refused.
    pub(super) fn settle(&mut self, ending: Ending, is_ended: bool) {
        let Ending { key, by, shared } = ending;
        let Some(entry) = self.live.get_mut(&key) else {
            return;
        };
        if shared {
            entry.holds += u32::from(!is_ended);
            return;
        }
        let is_ours = |ending: &Origin| ending.sequence == by.sequence;
        // A younger bearer of the number may have taken the place meanwhile.
        if !entry.ending.as_ref().is_some_and(is_ours) {
            return;
        }
        if is_ended {
            self.bury(key);
        } else {
            entry.ending = None;
        }
    }

    /// Demands that a stream is not being captured; whether it is live is another question.
    pub(super) fn not_captured(&self, call: Call, key: Key) -> Finding {
        let entry = self.live.get(&key).filter(|entry| entry.is_live());
        let Some(begun) = entry.and_then(|entry| entry.capture.clone()) else {
            return Ok(());
        };
        let misuse = Misuse::of(MisuseKind::StillCaptured, call, key.0, key.1, 0);
        Err(Box::new(Misuse { origin: Some(begun), ..misuse }))
    }

    /// Demands that a capture was begun on a stream, and forgets it.
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

    /// Moves something that is being ended to the memory of what was.
    fn bury(&mut self, key: Key) {
        let Some(Entry { bytes, origin, ending: Some(by), .. }) = self.live.remove(&key) else {
            return;
        };
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { key, bytes, origin, by });
    }

    /// What is live now, as leaks; what was adopted is not ours to end.
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

    /// The keys of one kind of ranges that meet `[start, start + bytes)`.
    pub(super) fn overlapping(&self, resource: Resource, start: u64, bytes: u64) -> Vec<Key> {
        let end = start.saturating_add(bytes);
        self.live
            .range((resource, 0)..(resource, end))
            .rev()
            // Ranges do not overlap, so the first that ends too early is followed by none that does not.
            .take_while(|((_, at), entry)| at.saturating_add(entry.bytes.max(1)) > start)
            .map(|(&key, _)| key)
            .collect()
    }

    /// The range of one kind in which an address lies.
    pub(super) fn containing(&self, resource: Resource, address: u64) -> Option<(Key, &Entry)> {
        let (&key, entry) = self.live.range((resource, 0)..=(resource, address)).next_back()?;
        (address - key.1 < entry.bytes.max(1)).then_some((key, entry))
    }

    /// The youngest ended resource for which `is_it` holds.
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

    /// Says in what else the address of a foreign resource lies, if in anything.
    fn describe_holder(&self, misuse: Box<Misuse>) -> Box<Misuse> {
        if !ADDRESSED.contains(&misuse.resource) {
            return misuse;
        }
        // The kind that was meant comes first: a reservation begins where its first mapping does.
        for resource in std::iter::once(misuse.resource).chain(ADDRESSED) {
            let Some((key, entry)) = self.containing(resource, misuse.subject) else {
                continue;
            };
            let what = match (key.1 == misuse.subject, resource == misuse.resource) {
                (true, false) => MisuseKind::WrongCall,
                _ => MisuseKind::Interior,
            };
            return Box::new(with_entry(Misuse { what, ..*misuse }, key, entry));
        }
        misuse
    }
}

/// The kinds that are ranges of addresses; a mapping comes before the reservation around it.
const ADDRESSED: [Resource; 7] = [
    Resource::Memory,
    Resource::StreamOrderedMemory,
    Resource::PinnedMemory,
    Resource::RegisteredMemory,
    Resource::OpenedMemory,
    Resource::Mapping,
    Resource::Reservation,
];

/// Adds what is known of a live resource.
pub(super) fn with_entry(mut misuse: Misuse, key: Key, entry: &Entry) -> Misuse {
    (misuse.resource, misuse.start) = key;
    misuse.size = entry.bytes;
    misuse.origin.clone_from(&entry.origin);
    misuse.ended.clone_from(&entry.ending);
    misuse
}

/// Adds what is remembered of an ended resource.
pub(super) fn with_ended(mut misuse: Misuse, ended: &Ended) -> Misuse {
    (misuse.resource, misuse.start) = ended.key;
    misuse.size = ended.bytes;
    misuse.origin.clone_from(&ended.origin);
    misuse.ended = Some(ended.by.clone());
    misuse
}

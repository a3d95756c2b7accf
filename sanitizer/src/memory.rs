//! The uses of memory, by address and life.
//!
//! A life of memory lasts from a request to its free. Uses of earlier lives stay until they precede everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use cachette_hal::Use;

use crate::clock::Clock;

/// A place in the program: the number of a stack that the caller captured, or zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site(pub u32);

/// The number of a text of a [`Sanitizer`](crate::Sanitizer); zero is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub(crate) u32);

impl Text {
    /// The text with a number of [`number`](Self::number). An unknown number is the empty text.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        Self(number)
    }

    /// Its number, for callers in other languages.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A use of memory by work in a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamUse {
    /// Which piece of work of the stream.
    pub(crate) number: u64,
    pub(crate) stream: u32,
    pub(crate) site: Site,
    /// The operator.
    pub(crate) by: Text,
    pub(crate) access: Use,
}

impl StreamUse {
    /// Returns whether `later` needs no check against this use that a check against `later` would not find too.
    fn is_superseded_by(&self, later: &Self) -> bool {
        self.stream == later.stream
            && self.number <= later.number
            && (later.access == Use::Write || self.access == Use::Read)
    }
}

/// The memory of one request.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) end: u64,
    /// Unique among all lives.
    pub(crate) number: u64,
    /// The stream of the request.
    pub(crate) owner: u32,
    pub(crate) allocated: Site,
    /// Such as the shape of a tensor.
    pub(crate) description: Text,
    /// Bytes without memory, while the pool sleeps.
    pub(crate) unmapped: u64,
    /// Whether a graph owns it; then its order is not followed.
    pub(crate) captured: bool,
    /// The last read and the last write of each stream.
    pub(crate) uses: Vec<StreamUse>,
}

impl Life {
    /// Returns whether the stream has used the memory in this way, or written it.
    pub(crate) fn has_use(&self, stream: u32, access: Use) -> bool {
        self.uses.iter().any(|used| used.stream == stream && (used.access == access || used.access == Use::Write))
    }

    pub(crate) fn add(&mut self, used: StreamUse) {
        self.uses.retain(|earlier| !earlier.is_superseded_by(&used));
        self.uses.reserve_exact(1);
        self.uses.push(used);
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PastLife {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) owner: u32,
    pub(crate) allocated: Site,
    pub(crate) freed: Site,
    pub(crate) description: Text,
}

/// A use in a life that has ended.
#[derive(Clone, Debug)]
pub(crate) struct PastUse {
    pub(crate) used: StreamUse,
    pub(crate) life: Arc<PastLife>,
}

/// Bytes with a common past.
#[derive(Clone, Debug)]
struct Region {
    end: u64,
    /// The last life.
    life: Arc<PastLife>,
    /// Uses of all past lives, except those that precede everything.
    uses: Vec<PastUse>,
}

/// The uses of memory, by address and life.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By first address; they do not overlap.
    lives: BTreeMap<u64, Life>,
    /// By first address; they do not overlap. They stay while the next life lasts.
    past: BTreeMap<u64, Region>,
    numbers: u64,
}

impl Memory {
    /// Begins a life.
    pub(crate) fn allocate(&mut self, address: u64, bytes: u64, owner: u32, allocated: Site, captured: bool) -> u64 {
        self.numbers += 1;
        let life = Life {
            end: address.saturating_add(bytes.max(1)),
            number: self.numbers,
            owner,
            allocated,
            description: Text::default(),
            unmapped: 0,
            captured,
            uses: Vec::new(),
        };
        self.lives.insert(address, life);
        self.numbers
    }

    /// The life that contains an address.
    pub(crate) fn life(&mut self, address: u64) -> Option<(u64, &mut Life)> {
        let (start, life) = self.lives.range_mut(..=address).next_back()?;
        (address < life.end).then_some((*start, life))
    }

    /// The first addresses of the lives that overlap a range.
    pub(crate) fn starts(&self, start: u64, end: u64) -> Vec<u64> {
        self.lives.range(..end).rev().take_while(|(_, life)| life.end > start).map(|(at, _)| *at).collect()
    }

    /// The last life of freed memory at an address.
    pub(crate) fn freed(&self, address: u64) -> Option<Arc<PastLife>> {
        let (_, region) = self.past.range(..=address).next_back()?;
        (address < region.end).then(|| Arc::clone(&region.life))
    }

    /// Uses of earlier lives in the range that conflict with `access` and do not precede `clock`. Those that precede
    /// `host` precede everything, and are removed.
    pub(crate) fn unordered(&mut self, start: u64, end: u64, access: Use, clock: &Clock, host: &Clock) -> Vec<PastUse> {
        let mut found = Vec::new();
        let first = self.past.range(..=start).next_back().filter(|(_, region)| region.end > start);
        let first = first.map_or(start, |(first, _)| *first);
        for region in self.past.range_mut(first..end).map(|(_, region)| region) {
            region.uses.retain(|past| !host.covers(past.used.stream, past.used.number));
            let conflicts = |past: &&PastUse| {
                (access == Use::Write || past.used.access == Use::Write)
                    && !clock.covers(past.used.stream, past.used.number)
            };
            found.extend(region.uses.iter().filter(conflicts).cloned());
        }
        found
    }

    /// The owners of the earlier lives in a range.
    pub(crate) fn past_owners(&self, start: u64, end: u64) -> Vec<u32> {
        let mut owners: Vec<u32> = self
            .past
            .range(..end)
            .rev()
            .take_while(|(_, region)| region.end > start)
            .map(|(_, region)| region.life.owner)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Ends a life, and keeps those of its uses, and of earlier ones, that `is_kept` selects.
    pub(crate) fn free(&mut self, address: u64, freed: Site, is_kept: impl Fn(&StreamUse) -> bool) -> bool {
        let Some(Life { end, owner, allocated, description, captured, uses, .. }) = self.lives.remove(&address) else {
            return false;
        };
        let life = Arc::new(PastLife { address, bytes: end - address, owner, allocated, freed, description });
        let mut own: Vec<PastUse> = Vec::new();
        for used in uses.into_iter().filter(|used| !captured && is_kept(used)) {
            own.reserve_exact(1);
            own.push(PastUse { used, life: Arc::clone(&life) });
        }
        let mut earlier = self.remove_past(address, end);
        for (_, region) in &mut earlier {
            region
                .uses
                .retain(|past| is_kept(&past.used) && !own.iter().any(|later| past.used.is_superseded_by(&later.used)));
        }
        earlier.retain(|(_, region)| !region.uses.is_empty());
        // Between the regions that keep uses of earlier lives lie those that have only this one's.
        let mut at = address;
        for (start, region) in earlier {
            if at < start {
                self.past.insert(at, Region { end: start, life: Arc::clone(&life), uses: own.clone() });
            }
            let mut uses = region.uses;
            uses.extend_from_slice(&own);
            self.past.insert(start, Region { end: region.end, life: Arc::clone(&life), uses });
            at = region.end;
        }
        if at < end {
            self.past.insert(at, Region { end, life, uses: own });
        }
        true
    }

    /// Removes the past of a range whose memory is gone.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        self.remove_past(start, end);
    }

    /// The lives that overlap a range, each with the number of common bytes.
    pub(crate) fn overlapping(&mut self, start: u64, end: u64) -> impl Iterator<Item = (&mut Life, u64)> {
        self.lives.range_mut(..end).rev().take_while(move |(_, life)| life.end > start).map(move |(at, life)| {
            let bytes = life.end.min(end) - (*at).max(start);
            (life, bytes)
        })
    }

    /// Removes the regions in a range, cut at its ends, in order.
    fn remove_past(&mut self, start: u64, end: u64) -> Vec<(u64, Region)> {
        let starts: Vec<u64> =
            self.past.range(..end).rev().take_while(|(_, region)| region.end > start).map(|(at, _)| *at).collect();
        let mut removed = Vec::with_capacity(starts.len());
        for at in starts.into_iter().rev() {
            let Some(mut region) = self.past.remove(&at) else { continue };
            if region.end > end {
                self.past.insert(end, region.clone());
                region.end = end;
            }
            if at < start {
                self.past.insert(at, Region { end: start, ..region.clone() });
            }
            removed.push((at.max(start), region));
        }
        removed
    }
}

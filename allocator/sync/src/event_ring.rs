//! A bounded ring of events that many heaps write at once without a lock.
//!
//! Heaps would contend for one counter if each event claimed its slot there. Instead a heap claims a run of slots with
//! one addition, and fills them under its own lock. Each heap has a separate [`RingWriter`] for that. The oldest slots
//! are claimed again. A writer that was idle for long drops the rest of its run, so that the newest events are
//! overwritten last.
//!
//! Every slot has a version: odd while it is written, even when its contents are complete. The version contains the
//! number of the slot (its ticket). It identifies the event for a reader, and a writer that is a whole round too late
//! detects that.

use crate::{AtomicU64, Ordering, fence, zeroed};

/// The longest run; the length of a ring is a multiple of it.
const LONGEST_RUN: u64 = 64;
/// The divisor of the kept entries that limits a run.
const RUNS: u64 = 2048;

/// The words of a slot: a version and those of an event, in the size of a cache line.
pub(crate) type RingSlot = [AtomicU64; 8];

/// The event in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingEntry<const WORDS: usize> {
    /// The number of the slot, counted over all slots claimed so far.
    pub ticket: u64,
    /// The written words.
    pub words: [u64; WORDS],
}

/// A bounded ring of events of some words each.
#[derive(Debug)]
pub struct Ring<const WORDS: usize> {
    /// The first word of each is its version: zero if the slot was never written, and odd while it is. Otherwise it is
    /// twice the ticket of its event, plus two.
    slots: Box<[RingSlot]>,
    /// The number of slots claimed so far. Relaxed: tickets must differ, and versions order everything else.
    claimed: AtomicU64,
    /// The number of slots that a writer claims at once.
    run: u64,
    /// The number of slots that others may claim before a writer drops the rest of its run.
    patience: u64,
}

/// The rest of a run of slots; only one thread at a time uses it.
#[derive(Debug, Default)]
pub struct RingWriter {
    ticket: u64,
    place: usize,
    left: u64,
}

impl<const WORDS: usize> Ring<WORDS> {
    /// A ring that keeps the last `entries` events of all writers.
    ///
    /// It has half as many slots again, because writers may hold slots that they have not written yet. With up to 32
    /// writers these are at most an eighth of the ring. Dropped slots are another eighth, and slots that are
    /// overwritten early are another.
    #[must_use]
    pub fn new(entries: u64) -> Self {
        let run = (entries / RUNS).clamp(1, LONGEST_RUN);
        // The largest power of two, so that the runs fill the ring without a rest.
        let run = 1 << run.ilog2();
        let length = (entries + entries / 2 + LONGEST_RUN).next_multiple_of(LONGEST_RUN);
        Self::with(length, run, entries / 8)
    }

    /// A ring of `length` slots, a multiple of `run`. Others may claim `patience` slots before a writer drops its run.
    pub(crate) fn with(length: u64, run: u64, patience: u64) -> Self {
        const { assert!(WORDS < 8, "an event and its version fit a slot") };
        Self { slots: zeroed(index(length)), claimed: AtomicU64::new(0), run, patience }
    }

    /// Writes an event.
    #[inline]
    pub fn write(&self, pen: &mut RingWriter, words: [u64; WORDS]) {
        loop {
            if pen.left == 0 || self.is_late(pen) {
                *pen = self.claim();
            }
            let (ticket, place) = (pen.ticket, pen.place);
            pen.ticket += 1;
            pen.place += 1;
            pen.left -= 1;
            if self.put(place, ticket, words) {
                return;
            }
            pen.left = 0;
        }
    }

    /// Returns whether others have claimed so many slots since that this writer's events would be overwritten early.
    fn is_late(&self, pen: &RingWriter) -> bool {
        let claimed = self.claimed.load(Ordering::Relaxed);
        claimed.saturating_sub(pen.ticket) > self.patience + self.run
    }

    #[cold]
    fn claim(&self) -> RingWriter {
        let ticket = self.claimed.fetch_add(self.run, Ordering::Relaxed);
        RingWriter { ticket, place: index(ticket % self.slots.len() as u64), left: self.run }
    }

    /// Writes one slot; `false` if another writer writes it or has a later ticket for it.
    pub(crate) fn put(&self, place: usize, ticket: u64, words: [u64; WORDS]) -> bool {
        let [version, to @ ..] = &self.slots[place];
        let before = version.load(Ordering::Relaxed);
        let allocated = before % 2 == 1 || before > 2 * ticket;
        // Acquire pairs with the release below of the previous writer: its words are stored before these.
        if allocated || version.compare_exchange(before, 2 * ticket + 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // Pairs with the fence in `read`: a reader that sees one of these words sees the odd version, or a later one.
        fence(Ordering::Release);
        for (to, word) in to.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        // Pairs with the acquire in `read`: a reader that sees this version sees these words, or later ones.
        version.store(2 * ticket + 2, Ordering::Release);
        true
    }

    /// The event in a slot; `None` if the slot is empty or is being written.
    pub fn read(&self, place: usize) -> Option<RingEntry<WORDS>> {
        let [version, words @ ..] = self.slots.get(place)?;
        let before = version.load(Ordering::Acquire);
        if before == 0 || before % 2 == 1 {
            return None;
        }
        let words = std::array::from_fn(|word| words[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let whole = version.load(Ordering::Relaxed) == before;
        whole.then_some(RingEntry { ticket: before / 2 - 1, words })
    }

    /// The event with a ticket, if it is still in the ring.
    pub fn find(&self, ticket: u64) -> Option<RingEntry<WORDS>> {
        let written = self.read(index(ticket % self.slots.len() as u64))?;
        (written.ticket == ticket).then_some(written)
    }

    /// All events, roughly in the order of their tickets; slots that are being written are skipped.
    pub fn all(&self) -> impl Iterator<Item = RingEntry<WORDS>> + '_ {
        let (length, claimed) = (self.slots.len(), self.claimed.load(Ordering::Relaxed));
        let oldest = index(claimed % length as u64);
        // In the first round no slot from here on was claimed.
        let older = if claimed < length as u64 { length } else { oldest };
        (older..length).chain(0..oldest).filter_map(|place| self.read(place))
    }
}

/// Converts a position to an index; the slots of every ring fit the host.
fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(0)
}

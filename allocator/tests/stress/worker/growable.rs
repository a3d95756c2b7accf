//! Steps with growable allocations: memory comes and goes in parts of half a page, and what stays keeps its bytes.

use std::ops::Range;

use cachette::growable::{Growable, GrowableProblem};
use cachette::{Error, Pool};

use crate::bytes::assert_filled;
use crate::fixture::{Fixture, Stream};
use crate::random::Random;

use super::Worker;

/// Half a page.
const PART: u64 = 1 << 20;
const PARTS: usize = 12;

/// What the model knows of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    NoMemory,
    /// It has memory, and the call that filled it failed.
    Anything,
    Filled(u8),
}

/// A growable allocation and its model.
#[derive(Debug)]
pub(super) struct Growing {
    memory: Growable,
    parts: [Part; PARTS],
}

fn bytes_of(range: &Range<usize>) -> Range<u64> {
    range.start as u64 * PART..range.end as u64 * PART
}

impl Growing {
    /// Reserves the addresses, in a pool or outside.
    pub(super) fn new(fixture: &Fixture, pool: Option<&Pool>, stream: &Stream) -> Option<Self> {
        let most = PARTS as u64 * PART;
        let made = match pool {
            Some(pool) => pool.allocate_growable(most, stream),
            None => fixture.allocator.allocate_growable(most, stream),
        };
        fixture.done(made).map(|memory| Self { memory, parts: [Part::NoMemory; PARTS] })
    }

    /// Some parts next to each other.
    fn range(random: &mut Random) -> Range<usize> {
        let start = random.below(PARTS);
        start..PARTS.min(start + 1 + random.below(4))
    }

    /// The first byte of a range whose part is as described.
    fn first(&self, range: &Range<usize>, is: impl Fn(Part) -> bool) -> Option<u64> {
        range.clone().find(|part| is(self.parts[*part])).map(|part| part as u64 * PART)
    }

    fn assert_committed(&self) {
        let parts = self.parts.iter().filter(|part| **part != Part::NoMemory).count();
        assert_eq!(self.memory.committed(), parts as u64 * PART, "the committed bytes");
    }

    /// Adds memory to some parts, and fills it.
    pub(super) fn commit(&mut self, fixture: &Fixture, random: &mut Random) {
        let range = Self::range(random);
        let taken = self.first(&range, |part| part != Part::NoMemory);
        let made = self.memory.commit(bytes_of(&range));
        match (taken, made) {
            (Some(expected), Err(Error::Growable(GrowableProblem::Committed { at }))) => assert_eq!(at, expected),
            (Some(_), made) => panic!("parts have memory already, and the commit returned {made:?}"),
            (None, made) => {
                if fixture.done(made).is_some() {
                    self.fill(fixture, range);
                }
            }
        }
        self.assert_committed();
    }

    /// Fills parts that have memory.
    fn fill(&mut self, fixture: &Fixture, range: Range<usize>) {
        for part in range {
            let byte = fixture.byte();
            let filled = fixture.fill(self.address(part), byte, PART, self.memory.stream());
            self.parts[part] = filled.map_or(Part::Anything, |()| Part::Filled(byte));
        }
    }

    fn address(&self, part: usize) -> u64 {
        self.memory.address() + part as u64 * PART
    }

    /// Takes the memory of some parts away.
    pub(super) fn decommit(&mut self, fixture: &Fixture, random: &mut Random) {
        let range = Self::range(random);
        let (missing, before) = (self.first(&range, |part| part == Part::NoMemory), self.parts);
        if missing.is_none() {
            // Also if the tracker panics.
            self.parts[range.clone()].fill(Part::NoMemory);
        }
        let made = self.memory.decommit(bytes_of(&range));
        match (missing, made) {
            (Some(expected), Err(Error::Growable(GrowableProblem::NotCommitted { at }))) => assert_eq!(at, expected),
            (Some(_), made) => panic!("parts have no memory, and the decommit returned {made:?}"),
            (None, made) => {
                // A failed call has come to the end of the range, or changed nothing.
                if fixture.done(made).is_none() && self.memory.committed() != self.count() {
                    self.parts = before;
                }
            }
        }
        self.assert_committed();
    }

    fn count(&self) -> u64 {
        self.parts.iter().filter(|part| **part != Part::NoMemory).count() as u64 * PART
    }

    /// Lets another stream read a part, says so, and does not wait.
    pub(super) fn read_elsewhere(&self, fixture: &Fixture, part: usize, stream: &Stream) -> Option<super::Download> {
        let Part::Filled(byte) = self.parts[part] else { return None };
        let read = fixture.read_elsewhere((self.address(part), PART, byte), self.memory.stream(), stream)?;
        self.memory.record_stream(stream);
        Some(read)
    }

    /// Reads what has memory, and looks at every byte.
    pub(super) fn check(&self, fixture: &Fixture) {
        for (part, state) in self.parts.iter().enumerate() {
            if let Part::Filled(byte) = state
                && let Some(read) = fixture.read(self.address(part), PART, self.memory.stream())
            {
                assert_filled(&read, *byte, "growable memory");
            }
        }
    }

    /// The contents are lost, and are written again.
    pub(super) fn refill(&mut self, fixture: &Fixture) {
        for part in 0..PARTS {
            if self.parts[part] != Part::NoMemory {
                self.fill(fixture, part..part + 1);
            }
        }
    }

    /// The number of a part.
    pub(super) fn part(random: &mut Random) -> usize {
        random.below(PARTS)
    }
}

impl Worker<'_> {
    pub(super) fn make_growable(&mut self) {
        if self.growing.len() > 1 {
            let at = self.random.below(self.growing.len());
            self.growing.swap_remove(at).check(self.fixture);
            return;
        }
        let stream = self.stream();
        self.growing.extend(Growing::new(self.fixture, None, stream));
    }

    pub(super) fn commit(&mut self) {
        if let Some(at) = self.random.place(&self.growing) {
            self.growing[at].commit(self.fixture, &mut self.random);
        }
    }

    /// Takes memory away, half of the time while another stream still reads it.
    pub(super) fn decommit(&mut self) {
        let Some(at) = self.random.place(&self.growing) else { return };
        let (stream, part) = (*self.random.of(&self.fixture.users()), Growing::part(&mut self.random));
        if self.random.once_in(2) {
            self.downloads.extend(self.growing[at].read_elsewhere(self.fixture, part, stream));
        }
        self.growing[at].decommit(self.fixture, &mut self.random);
    }

    /// After a panic of the tracker, a commit has changed nothing, and a decommit everything.
    pub(super) fn check_committed(&self) {
        for growing in self.growing.iter().chain(&self.evictable.growing) {
            growing.assert_committed();
        }
    }

    pub(super) fn check_growable(&mut self) {
        if let Some(at) = self.random.place(&self.growing) {
            self.growing[at].check(self.fixture);
        }
    }
}

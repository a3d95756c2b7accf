//! Which chunks go where: facts in, plan out.
//!
//! Three choices are made for a request that finds no free block. `docs/elastic.md` tells what each of them
//! gains, and what else was tried.
//!
//! * **Where** ([`place`](crate::elastic::placement)): where the fewest bytes are missing, and there at the first place. Free blocks
//!   that are too small by themselves are used up first, and what is missing is rounded to whole pages least often.
//! * **From what**: new memory, as long as hardly more is held than was ever in use at once; then spare chunks, of
//!   this heap and of others whose stream is idle; and new memory again if those do not suffice. A program that
//!   repeats itself gets a little more, so that chunks need not go to and fro for ever.
//! * **In which pieces**: small chunks come free sooner and cost more calls. A chunk may be the larger, the more is
//!   held already and the more chunks the requests so far have had to pay for; so programs that ask often or have
//!   little get fine chunks, and programs that ask for much at once get few. What is very large comes in few
//!   pieces whatever was paid, as another process may have to open each.

use super::{Fill, Tuning};
use crate::blocks::{Chunk, FreeRange, IdleChunk};
use crate::elastic::placement::{Placement, choose, longest_hole};
use crate::size::{LARGE_SEGMENT, SegmentKind};

/// A new chunk is at most this part of what may still be asked of the device: what comes last is cut finest.
const PART_OF_ROOM: u64 = 256;
/// Whoever needs more than this part of what may still be asked of the device must use spare chunks first.
const SCARCE: u64 = 16;

/// All that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// What chunks and their addresses are multiples of, in bytes.
    pub(crate) page: u64,
    /// What the block needs, in bytes.
    pub(crate) request: u64,
    /// Where it could go.
    pub(crate) runs: &'a [FreeRange],
    /// Spare chunks of this heap.
    pub(crate) idle_chunks: &'a [IdleChunk],
    /// Spare chunks of other heaps; `None` if nobody has looked yet.
    pub(crate) offered: Option<&'a [Chunk]>,
    /// Bytes of all chunks of the allocator.
    pub(crate) held: u64,
    /// The most bytes that were ever in use at once.
    pub(crate) used: u64,
    /// Requests so far.
    pub(crate) requests: u64,
    /// Requests until that most was first in use.
    pub(crate) until_most: u64,
    /// Bytes of all chunks when the program had gone on for twice as long; zero until then.
    pub(crate) held_then: u64,
    /// Chunks that were created or moved so far.
    pub(crate) spent: u64,
    /// Bytes that may be asked of the device yet.
    pub(crate) room: u64,
    /// Whether memory is wanting, so that every spare chunk must serve.
    pub(crate) pressed: bool,
    pub(crate) tuning: Tuning,
}

/// Where a block goes, and what fills the holes under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The run, by its place among those of the facts.
    pub(crate) run: usize,
    /// The address of the block.
    pub(crate) at: u64,
    /// Its bytes.
    pub(crate) request: u64,
    /// In order of address; the last may reach beyond the block.
    pub(crate) fills: Vec<Fill>,
}

impl Plan {
    /// The address after the last byte that the plan touches.
    pub(crate) fn end(&self) -> u64 {
        let filled = self.fills.last().map_or(0, Fill::end);
        filled.max(self.at + self.request)
    }

    /// What kind of request it serves.
    pub(crate) const fn kind(&self) -> SegmentKind {
        SegmentKind::of(self.request)
    }

    /// Bytes of new chunks.
    pub(crate) fn new_bytes(&self) -> u64 {
        let new = self.fills.iter().filter(|fill| fill.spare.is_none());
        new.map(|fill| fill.bytes).sum()
    }
}

/// What is to be done for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// This.
    Fill(Plan),
    /// More addresses are needed, for so many bytes.
    NoPlace(u64),
    /// Other heaps should say what they can spare.
    AskOthers,
    /// There is not enough memory, new or spare.
    NoMemory,
}

/// Decides how to serve a request.
pub(crate) fn decide(facts: &Facts<'_>) -> Decision {
    let Some(place) = choose(facts.runs, facts.request, facts.page) else {
        return Decision::NoPlace(facts.request);
    };
    let decision = plan_at(facts, &place);
    if decision == Decision::NoMemory
        && facts.pressed
        && let Some(place) = longest_hole(facts.runs, facts.request, facts.page)
    {
        // Spare chunks may be longer than the holes there; here there is room for each of them.
        return plan_at(facts, &place);
    }
    decision
}

/// Decides what fills the holes of a place.
fn plan_at(facts: &Facts<'_>, place: &Placement) -> Decision {
    let mut idle_chunks = Vec::new();
    if must_recycle(facts, place.missing) {
        let own = usable(facts, place);
        let bytes: u64 = own.iter().map(|chunk| chunk.bytes).sum();
        match facts.offered {
            None if bytes < place.missing => return Decision::AskOthers,
            // What lies highest is taken first, and the heap's own before that of others.
            offered => idle_chunks = [offered.unwrap_or(&[]), &own].concat(),
        }
    }
    let plan = Plan { run: place.run, at: place.at, request: facts.request, fills: fill(facts, place, idle_chunks) };
    if plan.new_bytes() > facts.room {
        return Decision::NoMemory;
    }
    Decision::Fill(plan)
}

/// Whether spare chunks must serve before new ones.
fn must_recycle(facts: &Facts<'_>, missing: u64) -> bool {
    // A program that has gone on for as long as it took to need the most memory will hardly need more.
    let calm = facts.requests / 2 > facts.until_most;
    let mut allowed = facts.used + facts.used / 1000 * facts.tuning.slack;
    if calm {
        let basis = facts.used.max(facts.held_then);
        allowed = basis + basis / 1000 * facts.tuning.calm;
    }
    let needed = facts.pressed || facts.held + missing > allowed || missing > facts.room / SCARCE;
    facts.tuning.recycles && needed
}

/// The spare chunks of this heap that do not lie where the block goes.
fn usable(facts: &Facts<'_>, place: &Placement) -> Vec<Chunk> {
    let apart = |chunk: &Chunk| chunk.end() <= place.at || chunk.at >= place.at + facts.request;
    let chunks = facts.idle_chunks.iter().map(|spare| spare.chunk);
    chunks.filter(apart).collect()
}

/// Fills the holes of a place with spare chunks while they last, and with new ones.
fn fill(facts: &Facts<'_>, place: &Placement, mut idle_chunks: Vec<Chunk>) -> Vec<Fill> {
    let (largest, unit) = (largest_new(facts), unit_of(facts, place));
    let mut fills = Vec::new();
    for hole in &place.holes {
        let mut at = hole.start;
        while at < hole.needed {
            let wanted = hole.needed - at;
            let (bytes, spare) = if let Some(index) = best_spare(&idle_chunks, wanted, hole.end - at) {
                let chunk = idle_chunks.remove(index);
                (chunk.bytes, Some(chunk.id))
            } else {
                let bytes = wanted.min(largest);
                let whole = bytes.next_multiple_of(unit);
                (if at + whole <= hole.end { whole } else { bytes }, None)
            };
            fills.push(Fill { at, bytes, spare });
            at += bytes;
        }
    }
    fills
}

/// The largest spare chunk that is wanted whole, or else the smallest that there is room for; the last of several,
/// or the first.
fn best_spare(idle_chunks: &[Chunk], wanted: u64, room: u64) -> Option<usize> {
    let all = || idle_chunks.iter().enumerate();
    let whole = all().filter(|(_, chunk)| chunk.bytes <= wanted);
    let whole = whole.max_by_key(|(index, chunk)| (chunk.bytes, *index));
    let partly = || {
        let fitting = all().filter(|(_, chunk)| chunk.bytes <= room);
        fitting.min_by_key(|(index, chunk)| (chunk.bytes, *index))
    };
    whole.or_else(partly).map(|(index, _)| index)
}

/// How large a new chunk may be: one page while chunks are fewer than the requests pay for, and from there on the
/// larger, the more they are; but a small part of all that is held, and a large one of a very large request.
fn largest_new(facts: &Facts<'_>) -> u64 {
    let debt = facts.spent.saturating_mul(facts.tuning.price) * 16 / facts.requests.max(1);
    let earned = facts.page.saturating_mul(debt.saturating_mul(debt) / 256);
    let most = facts.tuning.largest_for(facts.request, facts.held);
    let least = facts.tuning.least_for(facts.request);
    let bytes = earned.min(most).max(least.next_multiple_of(facts.page));
    let bytes = bytes.min(facts.room / PART_OF_ROOM).max(facts.page);
    bytes - bytes % facts.page
}

/// What new chunks are rounded up to, as far as the hole has room: whole segments for large requests where those are
/// wanted and may be asked of the device, and a page otherwise.
fn unit_of(facts: &Facts<'_>, place: &Placement) -> u64 {
    let most = place.missing + LARGE_SEGMENT * place.holes.len() as u64;
    let whole = facts.tuning.whole && SegmentKind::of(facts.request) == SegmentKind::Large && !facts.pressed;
    if whole && most <= facts.room && LARGE_SEGMENT.is_multiple_of(facts.page) { LARGE_SEGMENT } else { facts.page }
}

#[cfg(test)]
mod tests;

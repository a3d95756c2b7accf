//! The decision which chunks serve a request, as a function from facts to a plan.
//!
//! It has three parts: the place of the block, new or idle chunks for its unmapped parts, and the sizes of new chunks.
//! `docs/elastic.md` states the rules, the benefit of each, and the alternatives that were measured.

use super::Fill;
use crate::blocks::{BlockId, Chunk, FreeRange};
use crate::config::ElasticSetting;
use crate::elastic::chunk_table::Spending;
use crate::size::{LARGE_SEGMENT, SegmentKind, kind_of};

/// The largest new chunk, except for very large requests.
const LARGEST: u64 = 64 << 20;
/// How many requests should share the cost of one created or moved chunk.
const CHUNK_COST: u64 = 70;
/// The same for a program of small requests.
const SMALL_CHUNK_COST: u64 = 30;
/// The slack of the default setting, in thousandths.
const SLACK: u64 = 20;
/// Requests of at least this size get few chunks.
const VERY_LARGE: u64 = 256 << 20;
/// The limit on their number, since another process opens chunks one by one.
const FEW: u64 = 16;
/// A program whose requests have less than this on average makes many of them, so each chunk may cost more.
const SMALL_REQUESTS: u64 = 5 << 20;
/// A new chunk is at most this part of the memory held with it, so a small program has small chunks.
const PART_OF_HELD: u64 = 20;
/// A new chunk is at least this part of the memory held, so that a growing program does not pay for thousands of them.
const LEAST_PART_OF_HELD: u64 = 600;
/// A new chunk is at most this part of the memory that the device can still provide, so the last chunks are small.
const PART_OF_ROOM: u64 = 2048;
/// The same for a very large request.
const VERY_LARGE_PART_OF_ROOM: u64 = 256;
/// Up to so many heaps have the largest chunks. With twice as many, partly used chunks have at most a quarter of that.
const FEW_HEAPS: u64 = 4;
/// More heaps than these make no chunk smaller.
pub(crate) const MANY_HEAPS: usize = 16;
/// A request for more than this part of the memory that the device can still provide must use idle chunks first.
const SCARCE: u64 = 16;

/// How elastic segments are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Whether every new chunk is one page.
    pub(crate) pages: bool,
    /// How far the held bytes may exceed the peak of bytes in use before idle chunks must be used, in thousandths.
    pub(crate) slack: u64,
    /// Whether idle chunks are moved at all.
    pub(crate) recycles: bool,
    /// Whether a large request gets new memory in whole segments, as many as it needs.
    pub(crate) whole: bool,
}

impl Tuning {
    /// The parameters of each setting. docs/elastic.md lists their costs and savings.
    pub(crate) const fn of_setting(setting: ElasticSetting) -> Self {
        let (pages, slack) = match setting {
            ElasticSetting::Default => (false, SLACK),
            ElasticSetting::Compact => (true, 0),
        };
        Self { pages, slack, recycles: true, whole: false }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The unit of chunk sizes and chunk addresses, in bytes.
    pub(crate) page: u64,
    /// Heaps that have memory.
    pub(crate) heaps: u64,
    /// Bytes that the block needs.
    pub(crate) request: u64,
    /// The free ranges in which the block can be placed.
    pub(crate) runs: &'a [FreeRange],
    /// The address that the caller decided, in the only free range; `None` if the policy chooses.
    pub(crate) at: Option<u64>,
    /// Idle chunks of this heap, each with the free block around it.
    pub(crate) idle_chunks: &'a [(Chunk, BlockId)],
    /// Idle chunks of other heaps; `None` if the caller has not collected them yet.
    pub(crate) offered: Option<&'a [Chunk]>,
    /// Bytes of all chunks of the allocator.
    pub(crate) held: u64,
    /// The highest number of bytes in use at once.
    pub(crate) peak: u64,
    pub(crate) spending: Spending,
    /// Bytes that the limit still allows.
    pub(crate) room: u64,
    /// Bytes of the device's memory.
    pub(crate) total: u64,
    /// Whether memory is short, so that every idle chunk must be used.
    pub(crate) pressed: bool,
    pub(crate) tuning: Tuning,
}

impl Facts<'_> {
    /// Bytes that the device can still provide, if nobody else uses its memory.
    fn left(&self) -> u64 {
        self.room.min(self.total.saturating_sub(self.held))
    }
}

/// The place of a block, and the chunks for its unmapped parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The free range, as an index into the facts.
    pub(crate) run: usize,
    pub(crate) at: u64,
    /// Its bytes.
    pub(crate) request: u64,
    /// In order of address. The last one may extend beyond the block.
    pub(crate) fills: Vec<Fill>,
}

impl Plan {
    /// The address after the last byte that the plan touches.
    pub(crate) fn end(&self) -> u64 {
        let filled = self.fills.last().map_or(0, Fill::end);
        filled.max(self.at + self.request)
    }

    pub(crate) const fn kind(&self) -> SegmentKind {
        kind_of(self.request)
    }

    pub(crate) fn new_bytes(&self) -> u64 {
        let new = self.fills.iter().filter(|fill| fill.reused.is_none());
        new.map(|fill| fill.bytes).sum()
    }

    pub(crate) fn moves(&self, chunk: &Chunk) -> bool {
        self.fills.iter().any(|fill| fill.reused == Some(chunk.id))
    }
}

/// Why there is no plan yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Reserve more addresses, for so many bytes.
    NoPlace(u64),
    /// Collect the idle chunks of other heaps, and decide again.
    AskOthers,
    /// The new and idle chunks together are not enough.
    NoMemory,
}

/// Decides how to serve a request.
pub(crate) fn decide(facts: &Facts<'_>) -> Result<Plan, Obstacle> {
    if let (Some(at), [run]) = (facts.at, facts.runs) {
        return plan_at(facts, &placed(run, at, facts.request, facts.page));
    }
    let place = choose(facts.runs, facts.request, facts.page).ok_or(Obstacle::NoPlace(facts.request))?;
    let plan = plan_at(facts, &place);
    if plan == Err(Obstacle::NoMemory)
        && facts.pressed
        && let Some(place) = longest_hole(facts.runs, facts.request, facts.page)
    {
        // Idle chunks may be longer than the unmapped parts there. This place has room for each of them.
        return plan_at(facts, &place);
    }
    plan
}

/// Decides which chunks fill the unmapped parts of a place.
fn plan_at(facts: &Facts<'_>, place: &Placement) -> Result<Plan, Obstacle> {
    let mut idle_chunks = Vec::new();
    let allowed = facts.peak + facts.peak / 1000 * facts.tuning.slack;
    let exceeds = facts.held + place.missing > allowed || place.missing > facts.left() / SCARCE;
    // Whether idle chunks must be used before new ones.
    let recycles = facts.tuning.recycles && (facts.pressed || exceeds);
    if recycles {
        // A chunk at the place of the block stays there.
        let apart = |chunk: &Chunk| chunk.end() <= place.at || chunk.at >= place.at + facts.request;
        let own: Vec<_> = facts.idle_chunks.iter().map(|(chunk, _)| *chunk).filter(apart).collect();
        // Of equally large chunks the last is preferred: the heap's own before those of others, and the highest first.
        idle_chunks = [facts.offered.unwrap_or(&[]), &own].concat();
    }
    let asks_others = recycles && facts.offered.is_none();
    // No plan has fewer new bytes. Where the limit leaves little room, a plan can have thousands of chunks.
    if place.missing.saturating_sub(idle_chunks.iter().map(|chunk| chunk.bytes).sum::<u64>()) > facts.room {
        return Err(if asks_others { Obstacle::AskOthers } else { Obstacle::NoMemory });
    }
    let plan = Plan { run: place.run, at: place.at, request: facts.request, fills: fill(facts, place, idle_chunks) };
    if asks_others && plan.new_bytes() > 0 {
        return Err(Obstacle::AskOthers);
    }
    if plan.new_bytes() > facts.room { Err(Obstacle::NoMemory) } else { Ok(plan) }
}

/// Fills the unmapped parts of a place with idle chunks while they last, and then with new ones.
fn fill(facts: &Facts<'_>, place: &Placement, mut idle_chunks: Vec<Chunk>) -> Vec<Fill> {
    let (largest, unit) = (largest_new(facts), unit_of(facts, place));
    let mut fills = Vec::new();
    for hole in &place.unmapped {
        let mut at = hole.start;
        while at < hole.needed {
            let wanted = hole.needed - at;
            let (bytes, reused) = if let Some(index) = best_idle_chunk(&idle_chunks, wanted, hole.end - at) {
                let chunk = idle_chunks.remove(index);
                (chunk.bytes, Some(chunk.id))
            } else {
                let bytes = wanted.min(largest);
                let whole = bytes.next_multiple_of(unit);
                (if at + whole <= hole.end { whole } else { bytes }, None)
            };
            fills.push(Fill { at, bytes, reused });
            at += bytes;
        }
    }
    fills
}

/// Returns the last of the largest chunks that are needed completely, or else the first of the smallest that fit.
fn best_idle_chunk(idle_chunks: &[Chunk], wanted: u64, room: u64) -> Option<usize> {
    let all = || idle_chunks.iter().enumerate();
    let whole = all().filter(|(_, chunk)| chunk.bytes <= wanted);
    let whole = whole.max_by_key(|(index, chunk)| (chunk.bytes, *index));
    let partly = || {
        let fitting = all().filter(|(_, chunk)| chunk.bytes <= room);
        fitting.min_by_key(|(index, chunk)| (chunk.bytes, *index))
    };
    whole.or_else(partly).map(|(index, _)| index)
}

/// Returns the largest permitted size of a new chunk. While the requests have paid for all chunks, it is one page, or a
/// small part of the memory held. It grows with the chunks beyond that. The limit is [`LARGEST`], or a part of it if there
/// are many heaps, or a larger part of the memory held.
fn largest_new(facts: &Facts<'_>) -> u64 {
    let Facts { request, tuning, .. } = *facts;
    if tuning.pages {
        return facts.page;
    }
    let Spending { requests, bytes, chunks, .. } = facts.spending;
    let requests = requests.max(1);
    let chunk_cost = if bytes / requests < SMALL_REQUESTS { SMALL_CHUNK_COST } else { CHUNK_COST };
    let debt = chunks.saturating_mul(chunk_cost) * 16 / requests;
    let from_debt = facts.page.saturating_mul(debt.saturating_mul(debt) / 256).max(facts.held / LEAST_PART_OF_HELD);
    let heaps = facts.heaps.clamp(FEW_HEAPS, MANY_HEAPS as u64);
    let most = (LARGEST * FEW_HEAPS * FEW_HEAPS / (heaps * heaps)).min((facts.held + request) / PART_OF_HELD);
    let least = if request < VERY_LARGE { 0 } else { request.div_ceil(FEW) };
    let bytes = from_debt.min(most).min(facts.left() / PART_OF_ROOM).max(least.next_multiple_of(facts.page));
    let bytes = bytes.min(facts.left() / VERY_LARGE_PART_OF_ROOM).max(facts.page);
    bytes - bytes % facts.page
}

/// Returns the unit to which new chunks are rounded up, if the unmapped range has room. It is a whole segment for large
/// requests where the tuning and the device permit that, and a page otherwise.
fn unit_of(facts: &Facts<'_>, place: &Placement) -> u64 {
    let most = place.missing + LARGE_SEGMENT * place.unmapped.len() as u64;
    let whole = facts.tuning.whole && kind_of(facts.request) == SegmentKind::Large && !facts.pressed;
    if whole && most <= facts.room && LARGE_SEGMENT.is_multiple_of(facts.page) { LARGE_SEGMENT } else { facts.page }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Placement {
    /// The free range, by its index.
    run: usize,
    at: u64,
    /// Bytes that must be mapped, in whole pages.
    missing: u64,
    /// The unmapped ranges, in order of address.
    unmapped: Vec<UnmappedRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnmappedRange {
    start: u64,
    /// The end of the part that must be mapped.
    needed: u64,
    /// The end of the part that may be mapped.
    end: u64,
}

/// Returns the first place for `bytes` with the fewest unmapped bytes. The first place keeps blocks together, so that
/// the rest becomes free. Returns `None` if no free range is long enough.
fn choose(runs: &[FreeRange], bytes: u64, page: u64) -> Option<Placement> {
    let long_enough = runs.iter().enumerate().filter(|(_, run)| run.end - run.start >= bytes);
    let places = long_enough.flat_map(|(index, run)| {
        candidates(run, bytes, page).map(move |at| {
            let missing: u64 = holes(run, at, bytes, page).map(|hole| hole.needed - hole.start).sum();
            (missing, index, at)
        })
    });
    let (missing, run, at) = places.min()?;
    Some(Placement { run, at, missing, unmapped: holes(&runs[run], at, bytes, page).collect() })
}

/// Returns the place for `bytes` at an address in a free range.
fn placed(run: &FreeRange, at: u64, bytes: u64, page: u64) -> Placement {
    // No chunk extends beyond the place.
    let unmapped: Vec<_> = holes(run, at, bytes, page).map(|hole| UnmappedRange { end: hole.needed, ..hole }).collect();
    let missing = unmapped.iter().map(|hole| hole.needed - hole.start).sum();
    Placement { run: 0, at, missing, unmapped }
}

/// The place at the start of the longest unmapped range. Returns `None` if none is long enough for `bytes`.
fn longest_hole(runs: &[FreeRange], bytes: u64, page: u64) -> Option<Placement> {
    let of_run = |(index, run)| holes_of(run).map(move |(start, end)| (end - start, start, index));
    let (length, start, run) = runs.iter().enumerate().flat_map(of_run).max_by_key(|(length, ..)| *length)?;
    let missing = bytes.next_multiple_of(page);
    let hole = UnmappedRange { start, needed: start + missing, end: start + length };
    (length >= missing).then(|| Placement { run, at: start, missing, unmapped: vec![hole] })
}

/// The candidate addresses in a free range: a block begins at the start of a free block, or ends at its end.
fn candidates(run: &FreeRange, bytes: u64, page: u64) -> impl Iterator<Item = u64> + '_ {
    let starts = run.free.iter().map(|(start, _)| *start);
    let ends = run.free.iter().filter_map(move |(_, end)| {
        let at = end.checked_sub(bytes)?.max(run.start);
        Some(aligned(run, at, page))
    });
    let last = run.end - bytes;
    std::iter::once(run.start).chain(starts).chain(ends).filter(move |at| *at <= last)
}

/// The last address up to `at` where a block may begin. In an unmapped range that is a page boundary.
fn aligned(run: &FreeRange, at: u64, page: u64) -> u64 {
    let before = run.free.iter().take_while(|(start, _)| *start <= at);
    match before.last() {
        Some((_, end)) if at < *end => at,
        Some((_, end)) => at - (at - end) % page,
        None => at - (at - run.start) % page,
    }
}

/// The gaps before, between and after the free blocks: start and end of each. The first and the last may be empty.
fn holes_of(run: &FreeRange) -> impl Iterator<Item = (u64, u64)> + '_ {
    let starts = std::iter::once(run.start).chain(run.free.iter().map(|(_, end)| *end));
    let ends = run.free.iter().map(|(start, _)| *start).chain([run.end]);
    starts.zip(ends)
}

fn holes(run: &FreeRange, at: u64, bytes: u64, page: u64) -> impl Iterator<Item = UnmappedRange> + '_ {
    let stop = at + bytes;
    holes_of(run).filter_map(move |(start, end)| {
        let start = start.max(at);
        (start < end && start < stop).then(|| UnmappedRange {
            start,
            needed: end.min(start + (stop - start).next_multiple_of(page)),
            end,
        })
    })
}

#[cfg(test)]
mod tests;

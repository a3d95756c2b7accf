//! Where a block goes: the place where the fewest bytes are missing.

use crate::blocks::FreeRange;

/// A place for a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The run, by its place among all.
    pub(crate) run: usize,
    pub(crate) at: u64,
    /// Bytes that must be filled, in whole pages.
    pub(crate) missing: u64,
    /// Where they are, by address.
    pub(crate) holes: Vec<UnmappedRange>,
}

/// A hole under a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnmappedRange {
    pub(crate) start: u64,
    /// Up to here it must be filled.
    pub(crate) needed: u64,
    /// Up to here it may be.
    pub(crate) end: u64,
}

/// The place for `bytes` where the fewest are missing, and the first of several, so that blocks gather there and the
/// rest comes free; `None` if no run is long enough.
pub(crate) fn choose(runs: &[FreeRange], bytes: u64, page: u64) -> Option<Placement> {
    // Bytes missing, the run, and the address.
    let mut best: Option<(u64, usize, u64)> = None;
    for (index, run) in runs.iter().enumerate() {
        if run.end - run.start < bytes {
            continue;
        }
        for at in candidates(run, bytes, page) {
            let here = (missing(run, at, bytes, page), index, at);
            if best.is_none_or(|least| here < least) {
                best = Some(here);
            }
        }
    }
    let (missing, run, at) = best?;
    Some(Placement { run, at, missing, holes: holes(&runs[run], at, bytes, page).collect() })
}

/// The place at the start of the longest hole; `None` if none is long enough for `bytes`.
pub(crate) fn longest_hole(runs: &[FreeRange], bytes: u64, page: u64) -> Option<Placement> {
    let of_run = |run| holes_of(run).map(|(start, end)| (end - start, start));
    let all = runs.iter().enumerate();
    let all = all.flat_map(|(index, run)| of_run(run).map(move |hole| (hole, index)));
    let ((length, start), run) = all.max_by_key(|(hole, _)| hole.0)?;
    let missing = bytes.next_multiple_of(page);
    let hole = UnmappedRange { start, needed: start + missing, end: start + length };
    (length >= missing).then(|| Placement { run, at: start, missing, holes: vec![hole] })
}

/// Addresses in a run that may be best: every free block is used from its start, or up to its end.
fn candidates(run: &FreeRange, bytes: u64, page: u64) -> impl Iterator<Item = u64> + '_ {
    let starts = run.free.iter().map(|(start, _)| *start);
    let ends = run.free.iter().filter_map(move |(_, end)| {
        let at = end.checked_sub(bytes)?.max(run.start);
        Some(aligned(run, at, page))
    });
    let last = run.end - bytes;
    std::iter::once(run.start).chain(starts).chain(ends).filter(move |at| *at <= last)
}

/// The last address up to `at` where a block may begin: in a hole only at whole pages.
fn aligned(run: &FreeRange, at: u64, page: u64) -> u64 {
    let before = run.free.iter().take_while(|(start, _)| *start <= at);
    match before.last() {
        Some((_, end)) if at < *end => at,
        Some((_, end)) => at - (at - end) % page,
        None => at - (at - run.start) % page,
    }
}

/// What lies before, between and behind the free blocks of a run, as first address and the one after the last; the
/// first and the last may be empty.
fn holes_of(run: &FreeRange) -> impl Iterator<Item = (u64, u64)> + '_ {
    let starts = std::iter::once(run.start).chain(run.free.iter().map(|(_, end)| *end));
    let ends = run.free.iter().map(|(start, _)| *start).chain([run.end]);
    starts.zip(ends)
}

/// The holes under a block.
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

/// Bytes that must be filled for a block.
fn missing(run: &FreeRange, at: u64, bytes: u64, page: u64) -> u64 {
    let holes = holes(run, at, bytes, page);
    holes.map(|hole| hole.needed - hole.start).sum()
}

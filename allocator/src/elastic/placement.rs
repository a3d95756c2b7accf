//! Choosing the address of a block: the place with the fewest unmapped bytes.

use crate::blocks::FreeRange;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The free range, by its index.
    pub(crate) run: usize,
    pub(crate) at: u64,
    /// Bytes that must be mapped, in whole pages.
    pub(crate) missing: u64,
    /// The unmapped ranges, in order of address.
    pub(crate) unmapped: Vec<UnmappedRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnmappedRange {
    pub(crate) start: u64,
    /// The end of the part that must be mapped.
    pub(crate) needed: u64,
    /// The end of the part that may be mapped.
    pub(crate) end: u64,
}

/// Returns the first place for `bytes` with the fewest unmapped bytes. The first place keeps blocks together, so that
/// the rest becomes free. Returns `None` if no free range is long enough.
pub(crate) fn choose(runs: &[FreeRange], bytes: u64, page: u64) -> Option<Placement> {
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
pub(crate) fn placed(run: &FreeRange, at: u64, bytes: u64, page: u64) -> Placement {
    // No chunk extends beyond the place.
    let unmapped: Vec<_> = holes(run, at, bytes, page).map(|hole| UnmappedRange { end: hole.needed, ..hole }).collect();
    let missing = unmapped.iter().map(|hole| hole.needed - hole.start).sum();
    Placement { run: 0, at, missing, unmapped }
}

/// The place at the start of the longest unmapped range. Returns `None` if none is long enough for `bytes`.
pub(crate) fn longest_hole(runs: &[FreeRange], bytes: u64, page: u64) -> Option<Placement> {
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

//! Plans for random layouts.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::blocks::ChunkId;
use crate::config::ElasticSetting;
use crate::size::UNIT;

const PAGE: u64 = 2 << 20;
const SETTINGS: [ElasticSetting; 2] = [ElasticSetting::Default, ElasticSetting::Compact];

/// The state of the device and the allocator at one moment, from which [`Facts`] are borrowed.
#[derive(Clone, Debug)]
struct Moment {
    request: u64,
    heaps: u64,
    runs: Vec<FreeRange>,
    idle_chunks: Vec<(Chunk, BlockId)>,
    offered: Option<Vec<Chunk>>,
    used: u64,
    requests: u64,
    mean_request: u64,
    spent: u64,
    room: u64,
    pressed: bool,
    tuning: Tuning,
}

impl Moment {
    fn facts(&self) -> Facts<'_> {
        let chunks = self.idle_chunks.iter().map(|(chunk, _)| chunk.bytes);
        Facts {
            at: None,
            page: PAGE,
            heaps: self.heaps,
            request: self.request,
            runs: &self.runs,
            idle_chunks: &self.idle_chunks,
            offered: self.offered.as_deref(),
            held: self.used + chunks.sum::<u64>(),
            peak: self.used,
            spending: Spending {
                requests: self.requests,
                bytes: self.requests * self.mean_request,
                chunks: self.spent,
                ..Spending::default()
            },
            room: self.room,
            total: 1 << 50,
            pressed: self.pressed,
            tuning: self.tuning,
        }
    }

    /// Every idle chunk.
    fn all_spare(&self) -> Vec<Chunk> {
        let own = self.idle_chunks.iter().map(|(chunk, _)| *chunk);
        own.chain(self.offered.iter().flatten().copied()).collect()
    }
}

/// A free range: a free block before the first unmapped block, then every unmapped block with the free block after it.
/// Sizes are in pages, except the first and last, which are in units.
type Shape = (u64, Vec<(u64, u64)>, u64);

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let holes = prop::collection::vec((1..12_u64, 1..5_u64), 1..5);
    let end = prop_oneof![Just(0), 1..6000_u64];
    prop::collection::vec((end.clone(), holes, end), 0..5)
}

/// Builds a free range that begins at `start`.
fn run_of((lead, holes, trail): &Shape, start: u64) -> FreeRange {
    // The first unmapped block begins at a page boundary, as every chunk does.
    let first = (start + lead * UNIT).next_multiple_of(PAGE);
    let start = first - lead * UNIT;
    let mut run = FreeRange { anchor: BlockId::NONE, start, end: first, free: Vec::new() };
    if *lead > 0 {
        run.free.push((start, first));
    }
    for (at, (hole, free)) in holes.iter().enumerate() {
        run.end += hole * PAGE;
        let last = at + 1 == holes.len();
        let bytes = if last { trail * UNIT } else { free * PAGE };
        if bytes > 0 {
            run.free.push((run.end, run.end + bytes));
            run.end += bytes;
        }
    }
    run
}

/// Chunks that lie completely inside a free block, of `sizes` pages in turn.
fn chunks_in(start: u64, end: u64, sizes: &[u64], idle_chunks: &mut Vec<(Chunk, BlockId)>) {
    let mut at = start.next_multiple_of(PAGE);
    let mut sizes = sizes.iter().cycle();
    while at + PAGE <= end {
        let wanted = sizes.next().copied().unwrap_or(1) * PAGE;
        let bytes = wanted.min((end - at) / PAGE * PAGE);
        let id = ChunkId(u32::try_from(idle_chunks.len()).unwrap_or(0));
        idle_chunks.push((Chunk { id, at, bytes, kind: SegmentKind::Large }, BlockId::NONE));
        at += bytes;
    }
}

fn moments() -> impl Strategy<Value = Moment> {
    let layout = (
        shapes(),
        prop::collection::vec(1..9_u64, 1..4),
        prop::collection::vec(1..20_u64, 0..4),
        prop::option::of(prop::collection::vec(1..20_u64, 0..6)),
    );
    let state = (
        1..60_000_u64,
        prop_oneof![0..40_u64, Just(u64::MAX / PAGE)],
        0..1000_u64,
        (0..2000_u64, 0..2000_u64),
        (any::<bool>(), any::<bool>(), 0..SETTINGS.len()),
    );
    (layout, state).prop_map(|((shapes, sizes, apart, offered), state)| {
        let (units, room, used, (requests, spent), (pressed, recycles, setting)) = state;
        let (mut runs, mut idle_chunks) = (Vec::new(), Vec::new());
        let mut next = 64 * PAGE;
        for shape in &shapes {
            let run = run_of(shape, next);
            next = (run.end + 3 * PAGE).next_multiple_of(PAGE);
            for (start, end) in &run.free {
                chunks_in(*start, *end, &sizes, &mut idle_chunks);
            }
            runs.push(run);
        }
        // Free blocks between mapped blocks are in no free range.
        for pages in apart {
            chunks_in(next, next + pages * PAGE, &sizes, &mut idle_chunks);
            next += (pages + 2) * PAGE;
        }
        let offered = offered.map(|pages| {
            let chunk = |(id, pages): (u32, u64)| Chunk {
                id: ChunkId(id),
                at: (1 << 50) + u64::from(id) * 64 * PAGE,
                bytes: pages * PAGE,
                kind: SegmentKind::Large,
            };
            (100_000..).zip(pages).map(chunk).collect()
        });
        let mut tuning = Tuning::of_setting(SETTINGS[setting]);
        tuning.recycles = recycles || pressed;
        Moment {
            request: units * UNIT,
            heaps: 1,
            runs,
            idle_chunks,
            offered,
            used: used * PAGE,
            requests,
            mean_request: units * UNIT,
            spent,
            room: room * PAGE,
            pressed,
            tuning,
        }
    })
}

/// The unmapped parts of a free range, each as its first address and its end.
fn holes(run: &FreeRange) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let mut at = run.start;
    for (start, end) in run.free.iter().copied().chain([(run.end, run.end)]) {
        if at < start {
            holes.push((at, start));
        }
        at = end;
    }
    holes
}

/// Checks that the fills cover every unmapped part under the block exactly, in order, with whole pages.
fn check_cover(moment: &Moment, plan: &Plan) -> Result<(), TestCaseError> {
    let run = &moment.runs[plan.run];
    let stop = plan.at + plan.request;
    prop_assert!(run.start <= plan.at && stop <= run.end, "outside its run");
    let mut fills = plan.fills.iter().peekable();
    for (start, end) in holes(run) {
        let mut at = start.max(plan.at);
        while at < end.min(stop) {
            let fill = fills.next();
            let Some(fill) = fill else {
                return Err(TestCaseError::fail(format!("nothing fills {at:#x}")));
            };
            prop_assert_eq!(fill.at, at, "fills leave a gap or overlap");
            prop_assert!(fill.bytes > 0 && fill.bytes.is_multiple_of(PAGE));
            prop_assert!(fill.at.is_multiple_of(PAGE), "chunks lie at whole pages");
            prop_assert!(fill.end() <= end, "a fill reaches beyond its hole");
            at = fill.end();
        }
    }
    prop_assert!(fills.next().is_none(), "a fill is of no use");
    prop_assert!(plan.end() <= run.end);
    Ok(())
}

/// Checks that every idle chunk is used at most once, at its full size, and none that lies under the block.
fn check_spares(moment: &Moment, plan: &Plan) -> Result<(), TestCaseError> {
    let all = moment.all_spare();
    let mut seen = HashSet::new();
    for fill in &plan.fills {
        let Some(id) = fill.reused else {
            let largest = if moment.tuning.pages { PAGE } else { LARGEST };
            prop_assert!(fill.bytes <= largest, "a new chunk is too large");
            continue;
        };
        prop_assert!(moment.tuning.recycles, "chunks should stay where they are");
        prop_assert!(seen.insert(id), "a chunk serves twice");
        let chunk = all.iter().find(|chunk| chunk.id == id);
        let Some(chunk) = chunk else { return Err(TestCaseError::fail("a chunk from nowhere")) };
        prop_assert_eq!(chunk.bytes, fill.bytes);
        let under = chunk.at < plan.end() && plan.at < chunk.end();
        prop_assert!(!under, "a chunk is taken from under the block");
    }
    let left = |chunk: &&Chunk| {
        let apart = chunk.end() <= plan.at || chunk.at >= plan.at + plan.request;
        apart && !seen.contains(&chunk.id)
    };
    if moment.pressed && plan.new_bytes() > 0 {
        let fits = all.iter().filter(left).any(|chunk| chunk.bytes == PAGE);
        prop_assert!(!fits, "new memory is made while spare memory would fit");
    }
    prop_assert!(plan.new_bytes() <= moment.room, "more is made than may be");
    Ok(())
}

/// Whether the idle chunks and the new chunks together are large enough for one unmapped part.
fn is_enough(moment: &Moment) -> bool {
    let longest = moment.runs.iter().flat_map(holes);
    let longest = longest.map(|(start, end)| end - start).max().unwrap_or(0);
    let all = moment.all_spare();
    let largest = all.iter().map(|chunk| chunk.bytes).max().unwrap_or(0);
    let spare: u64 = all.iter().map(|chunk| chunk.bytes).sum();
    let needed = moment.request.next_multiple_of(PAGE);
    longest >= needed + largest && spare.saturating_add(moment.room) >= needed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_plan_is_sound(moment in moments()) {
        let decision = decide(&moment.facts());
        prop_assert_eq!(&decision, &decide(&moment.facts()), "the same facts, the same plan");
        let fits = moment.runs.iter().any(|run| run.end - run.start >= moment.request);
        match decision {
            Ok(plan) => {
                check_cover(&moment, &plan)?;
                check_spares(&moment, &plan)?;
            }
            Err(Obstacle::NoPlace(bytes)) => {
                prop_assert_eq!(bytes, moment.request);
                prop_assert!(!fits);
            }
            Err(Obstacle::AskOthers) => prop_assert!(moment.offered.is_none() && fits),
            Err(Obstacle::NoMemory) => {
                prop_assert!(fits);
                prop_assert!(!(moment.pressed && is_enough(&moment)), "enough is spare");
            }
        }
    }

    #[test]
    fn the_chosen_place_has_the_fewest_bytes_missing(moment in moments()) {
        let missing = |at: u64, run: &FreeRange| -> u64 {
            let stop = at + moment.request;
            let under = holes(run).into_iter().map(|(start, end)| {
                let start = start.max(at);
                if start < end.min(stop) { (stop.min(end) - start).next_multiple_of(PAGE) } else { 0 }
            });
            under.sum()
        };
        let Some(place) = choose(&moment.runs, moment.request, PAGE) else { return Ok(()) };
        let chosen = missing(place.at, &moment.runs[place.run]);
        prop_assert_eq!(place.missing, chosen);
        prop_assert!(place.unmapped.iter().all(|hole| hole.start < hole.end), "nothing is unmapped there");
        for run in &moment.runs {
            // A block can begin anywhere in a free block, and at the start of the range.
            let starts = run.free.iter().map(|(start, _)| *start).chain([run.start]);
            for at in starts.filter(|at| at + moment.request <= run.end) {
                prop_assert!(chosen <= missing(at, run));
            }
        }
    }
}

#[test]
fn a_chunk_too_long_for_the_hole_serves_in_a_longer_one() {
    let shape = (0, vec![(1, 2), (40, 1)], 0);
    let run = run_of(&shape, 64 * PAGE);
    let mut idle_chunks = Vec::new();
    chunks_in(500 * PAGE, 508 * PAGE, &[8], &mut idle_chunks);
    let moment = Moment {
        request: 3 * PAGE,
        heaps: 1,
        runs: vec![run],
        idle_chunks,
        offered: Some(Vec::new()),
        used: 0,
        requests: 10,
        mean_request: 8 << 20,
        spent: 10,
        room: 0,
        pressed: true,
        tuning: Tuning::of_setting(ElasticSetting::Default),
    };
    let Ok(plan) = decide(&moment.facts()) else {
        panic!("8 pages are spare and 3 are wanted");
    };
    assert_eq!(plan.new_bytes(), 0);
}

/// The sizes of the new chunks for a request of a program that has many chunks and `used` bytes.
fn pieces(setting: ElasticSetting, request: u64, used: u64) -> Vec<u64> {
    let spent = 10_000;
    pieces_after(spent, setting, request, used)
}

/// The same after 1000 requests have paid for `spent` chunks.
fn pieces_after(spent: u64, setting: ElasticSetting, request: u64, used: u64) -> Vec<u64> {
    sizes(&Moment { used, spent, ..growing(setting, request) })
}

/// A moment at which a request needs new memory, and has addresses for it.
fn growing(setting: ElasticSetting, request: u64) -> Moment {
    let shape = (0, vec![(4096, 0)], 0);
    Moment {
        request,
        heaps: 1,
        runs: vec![run_of(&shape, 64 * PAGE)],
        idle_chunks: Vec::new(),
        offered: Some(Vec::new()),
        used: 4 << 30,
        requests: 1000,
        mean_request: 8 << 20,
        spent: 10_000,
        room: 1 << 50,
        pressed: false,
        tuning: Tuning::of_setting(setting),
    }
}

/// The sizes of the chunks that a plan maps.
fn sizes(moment: &Moment) -> Vec<u64> {
    let Ok(plan) = decide(&moment.facts()) else {
        panic!("there are addresses and memory enough");
    };
    plan.fills.iter().map(|fill| fill.bytes).collect()
}

#[test]
fn a_request_gets_one_new_chunk_until_it_is_very_large() {
    let default = ElasticSetting::Default;
    let mib = 1 << 20;
    assert_eq!(pieces(default, 38 * mib, 2 << 30), [38 * mib; 1]);
    assert_eq!(pieces(default, 64 * mib, 2 << 30), [64 * mib; 1]);
    assert_eq!(pieces(default, 128 * mib, 2 << 30), [64 * mib; 2]);
    assert_eq!(pieces(default, 1024 * mib, 0), [64 * mib; 16]);
    assert_eq!(pieces(default, 8192 * mib, 0), [512 * mib; 16]);
    assert_eq!(pieces(ElasticSetting::Compact, 64 * mib, 80 << 30), [2 * mib; 32]);
}

#[test]
fn a_very_large_request_gets_at_most_sixteen_chunks() {
    let requests = [256 << 20, (256 << 20) + UNIT, 1 << 30, (1 << 30) + UNIT, 7 << 30];
    for spent in [0, 10, 100, 10_000] {
        let pieces = requests.map(|request| pieces_after(spent, ElasticSetting::Default, request, 0).len());
        assert!(pieces.iter().all(|pieces| *pieces <= 16), "{pieces:?}");
    }
    assert_eq!(pieces_after(0, ElasticSetting::Compact, 1 << 30, 0).len(), 512);
}

#[test]
fn the_more_heaps_there_are_the_smaller_their_chunks_are() {
    let mib = 1 << 20;
    let largest = |heaps| sizes(&Moment { heaps, ..growing(ElasticSetting::Default, 64 * mib) })[0];
    assert_eq!([1, 4, 8, 16, 1000].map(largest), [64 * mib, 64 * mib, 16 * mib, 4 * mib, 4 * mib]);
}

#[test]
fn chunks_are_small_where_little_memory_is_held() {
    let mib = 1 << 20;
    let largest = |used| sizes(&Moment { used, ..growing(ElasticSetting::Default, 40 * mib) })[0];
    assert_eq!([0, 40 * mib, 360 * mib, 4 << 30].map(largest), [2 * mib, 4 * mib, 20 * mib, 40 * mib]);
}

#[test]
fn chunks_grow_with_the_debt_beyond_what_was_paid_for() {
    // The debt is a tenth of the chunks.
    let moment = Moment { requests: 10 * CHUNK_COST, used: 2 << 30, ..growing(ElasticSetting::Default, 60 << 20) };
    let largest = |spent| sizes(&Moment { spent, ..moment.clone() })[0] / PAGE;
    assert_eq!([0, 10, 20, 50, 10_000].map(largest), [1, 1, 4, 25, 30]);
}

#[test]
fn chunks_that_are_paid_for_have_a_600th_of_the_memory_held() {
    let paid = |setting, used| sizes(&Moment { used, spent: 0, ..growing(setting, 60 << 20) })[0] / PAGE;
    let held = [0, 1200 * PAGE - 1, 1200 * PAGE, 2100 * PAGE, 64 << 30];
    assert_eq!(held.map(|used| paid(ElasticSetting::Default, used)), [1, 1, 2, 3, 30]);
    assert_eq!(held.map(|used| paid(ElasticSetting::Compact, used)), [1; 5]);
}

#[test]
fn chunks_are_small_where_requests_are_small() {
    let moment = Moment { used: 2 << 30, spent: 50, ..growing(ElasticSetting::Default, 60 << 20) };
    let largest = |mean_request| sizes(&Moment { mean_request, ..moment.clone() })[0] / PAGE;
    assert_eq!([UNIT, (5 << 20) - 1, 5 << 20, 1 << 30].map(largest), [2, 2, 12, 12]);
}

#[test]
fn chunks_are_small_where_little_memory_is_left() {
    let mib = 1 << 20;
    let largest = |room| sizes(&Moment { room, ..growing(ElasticSetting::Default, 64 * mib) })[0];
    assert_eq!([128 << 30, 16 << 30, 1 << 30].map(largest), [64 * mib, 8 * mib, 2 * mib]);
}

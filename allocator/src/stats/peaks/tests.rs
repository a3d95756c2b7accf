//! The peaks equal those of a naive sum after every step, also when heaps are added and retired.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::blocks::Split;
use crate::size::SegmentKind;
use crate::stats::peaks::*;

/// What can happen to a heap.
#[derive(Clone, Debug)]
enum Step {
    Enlist,
    /// A heap is retired once it is empty.
    Retire(Index),
    Allocate(Index, bool, u64),
    /// The oldest allocation of a heap becomes free, or pending first.
    Free(Index, bool),
    /// The newest allocation becomes free and is kept for the next request, unless another one is kept already.
    FreeLast(Index),
    /// The kept block is allocated again.
    AllocateAgain(Index),
    /// The oldest pending block becomes free.
    Settle(Index),
    Segment(Index, bool, u64),
    Release(Index),
    Split(Index, [(u64, u64); 2]),
    ResetPeaks,
}

/// A heap, naively: lists of what it has.
#[derive(Debug, Default)]
struct Model {
    counters: Arc<Counters>,
    allocated: Vec<(SegmentKind, u64)>,
    /// The last-freed block.
    kept: Option<(SegmentKind, u64)>,
    pending: Vec<(SegmentKind, u64)>,
    segments: Vec<(SegmentKind, u64)>,
    split: [(u64, u64); 2],
}

impl Model {
    /// What it adds to a measure.
    fn sum(&self, row: Row, measure: Counted) -> u64 {
        let fits = |kind: SegmentKind| matches!(row, Row::All) || Row::from(kind) == row;
        let count = |list: &[(SegmentKind, u64)]| list.iter().filter(|one| fits(one.0)).count() as u64;
        let bytes = |list: &[(SegmentKind, u64)]| -> u64 {
            let fitting = list.iter().filter(|one| fits(one.0));
            fitting.map(|one| one.1).sum()
        };
        let split = |of: fn(&(u64, u64)) -> u64| -> u64 {
            let kinds = [SegmentKind::Small, SegmentKind::Large].into_iter().zip(&self.split);
            let fitting = kinds.filter(|(kind, _)| fits(*kind));
            fitting.map(|(_, split)| of(split)).sum()
        };
        match measure {
            Counted::Allocations => count(&self.allocated),
            Counted::Segments => count(&self.segments),
            Counted::Pending => count(&self.allocated) + count(&self.pending),
            Counted::InactiveSplit => split(|split| split.0),
            Counted::AllocatedBytes => bytes(&self.allocated),
            Counted::ReservedBytes => bytes(&self.segments),
            Counted::PendingBytes => bytes(&self.allocated) + bytes(&self.pending),
            Counted::InactiveSplitBytes => split(|split| split.1),
            // Callers ask for half of what they get, until the block is free.
            Counted::RequestedBytes => u64::midpoint(bytes(&self.allocated), bytes(&self.pending)),
        }
    }

    fn is_empty(&self) -> bool {
        self.allocated.is_empty() && self.pending.is_empty() && self.segments.is_empty() && self.split == [(0, 0); 2]
    }

    /// Changes the heap and its counters; whether the peak tracker must look.
    fn take(&mut self, step: &Step) -> bool {
        let kind_of = |large: bool| if large { SegmentKind::Large } else { SegmentKind::Small };
        let counters = &self.counters;
        match step {
            Step::Allocate(_, large, bytes) => {
                let (kind, bytes) = (kind_of(*large), bytes * 2);
                self.allocated.push((kind, bytes));
                counters.allocated(kind, bytes, bytes / 2)
            }
            Step::Free(_, pends) if !self.allocated.is_empty() => {
                let (kind, bytes) = self.allocated.remove(0);
                if !pends {
                    self.kept = None;
                    counters.freed(kind, bytes, bytes / 2);
                    return false;
                }
                self.pending.push((kind, bytes));
                counters.lower(Counted::Allocations, kind, 1);
                counters.lower(Counted::AllocatedBytes, kind, bytes);
                let one = counters.raise(Counted::Pending, kind, 1);
                counters.raise(Counted::PendingBytes, kind, bytes) | one
            }
            Step::FreeLast(_) if self.kept.is_none() => {
                self.kept = self.allocated.pop();
                if let Some((kind, bytes)) = self.kept {
                    counters.freed_last(kind, bytes, bytes / 2);
                }
                false
            }
            Step::AllocateAgain(_) => {
                let Some((kind, bytes)) = self.kept.take() else { return false };
                self.allocated.push((kind, bytes));
                !counters.allocated_again(kind, bytes, bytes / 2) && counters.allocated(kind, bytes, bytes / 2)
            }
            Step::Settle(_) if !self.pending.is_empty() => {
                let (kind, bytes) = self.pending.remove(0);
                counters.lower(Counted::Pending, kind, 1);
                counters.lower(Counted::PendingBytes, kind, bytes);
                counters.lower(Counted::RequestedBytes, kind, bytes / 2);
                false
            }
            Step::Segment(_, large, bytes) => {
                let kind = kind_of(*large);
                self.segments.push((kind, *bytes));
                let one = counters.raise(Counted::Segments, kind, 1);
                counters.raise(Counted::ReservedBytes, kind, *bytes) | one
            }
            Step::Release(_) if !self.segments.is_empty() => {
                let (kind, bytes) = self.segments.remove(0);
                counters.lower(Counted::Segments, kind, 1);
                counters.lower(Counted::ReservedBytes, kind, bytes);
                false
            }
            Step::Split(_, split) => {
                self.split = *split;
                counters.set_split(split.map(|(blocks, bytes)| Split { blocks, bytes }))
            }
            _ => false,
        }
    }
}

/// A peak tracker and a model of it.
#[derive(Debug, Default)]
struct Bench {
    ledger: PeakTracker,
    heaps: Vec<Model>,
    peaks: [[u64; 9]; 3],
}

impl Bench {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Enlist => {
                let heap = Model::default();
                self.ledger.enlist(&heap.counters);
                self.heaps.push(heap);
            }
            Step::ResetPeaks => {
                self.ledger.reset_peaks();
                self.peaks = [[0; 9]; 3];
            }
            Step::Retire(which)
            | Step::Allocate(which, ..)
            | Step::Free(which, _)
            | Step::FreeLast(which)
            | Step::AllocateAgain(which)
            | Step::Settle(which)
            | Step::Segment(which, ..)
            | Step::Release(which)
            | Step::Split(which, _) => {
                if self.heaps.is_empty() {
                    return;
                }
                let index = which.index(self.heaps.len());
                if matches!(step, Step::Retire(_)) {
                    if self.heaps[index].is_empty() {
                        self.ledger.retire(&self.heaps.remove(index).counters);
                    }
                } else if self.heaps[index].take(step) {
                    self.ledger.note(&self.heaps[index].counters);
                }
            }
        }
        self.check();
    }

    /// Compares the recorded peaks; to query the tracker for a peak would raise it.
    fn check(&mut self) {
        for row in Row::EVERY {
            for measure in GROUPS.into_iter().flatten().copied() {
                let sum: u64 = self.heaps.iter().map(|heap| heap.sum(row, measure)).sum();
                let peak = &mut self.peaks[row as usize][measure as usize];
                *peak = sum.max(*peak);
                let book = self.ledger.0.lock();
                let noted = book.figures[row as usize][measure as usize].peak;
                assert_eq!(noted, *peak, "{row:?}, {measure:?}");
                let limit =
                    |heap: &Model| -> u64 { parts(measure).iter().map(|part| heap.counters.limit(row, *part)).sum() };
                let limits: u64 = self.heaps.iter().map(limit).sum();
                assert!(limits <= *peak, "{row:?}, {measure:?}: {limits} of {peak}");
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = any::<Index>;
    let bytes = 1..5_000_u64;
    let split = prop::array::uniform2((0..9_u64, 0..9_000_u64));
    let step = prop_oneof![
        2 => Just(Step::Enlist),
        1 => which().prop_map(Step::Retire),
        8 => (which(), any::<bool>(), bytes.clone()).prop_map(|(at, kind, by)| Step::Allocate(at, kind, by)),
        7 => (which(), any::<bool>()).prop_map(|(at, pends)| Step::Free(at, pends)),
        4 => which().prop_map(Step::FreeLast),
        5 => which().prop_map(Step::AllocateAgain),
        3 => which().prop_map(Step::Settle),
        3 => (which(), any::<bool>(), bytes).prop_map(|(at, kind, by)| Step::Segment(at, kind, by)),
        2 => which().prop_map(Step::Release),
        3 => (which(), split).prop_map(|(at, split)| Step::Split(at, split)),
        1 => Just(Step::ResetPeaks),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn peaks_are_those_of_a_naive_sum_after_every_step(steps in steps()) {
        let mut bench = Bench::default();
        for step in &steps {
            bench.take(step);
        }
    }
}

#[test]
fn a_block_that_is_freed_and_allocated_again_is_counted_without_the_tracker_below_the_peak() {
    let counters = Arc::new(Counters::default());
    let tracker = PeakTracker::default();
    tracker.enlist(&counters);
    assert!(counters.allocated(SegmentKind::Small, 512, 500));
    tracker.note(&counters);
    counters.freed_last(SegmentKind::Small, 512, 500);
    assert!(counters.allocated_again(SegmentKind::Small, 512, 500));
    counters.freed_last(SegmentKind::Small, 512, 500);
    tracker.reset_peaks();
    assert!(!counters.allocated_again(SegmentKind::Small, 512, 500));
}

#[test]
fn a_block_that_is_allocated_again_after_a_late_look_at_the_peaks_counts() {
    let (tracker, counters) = <(PeakTracker, Arc<Counters>)>::default();
    let kind = SegmentKind::Small;
    tracker.enlist(&counters);
    assert!(counters.allocated(kind, 512, 500));
    tracker.note(&counters);
    // One thread allocates a second block. Before it looks at the peaks, another one frees the first block.
    assert!(counters.allocated(kind, 512, 500));
    counters.freed_last(kind, 512, 500);
    tracker.note(&counters);
    assert!(!counters.allocated_again(kind, 512, 500), "two blocks were never seen at once");
}

#[test]
fn a_new_heap_has_no_share_and_asks_at_its_first_step() {
    let (ledger, first, second) = <(PeakTracker, Arc<Counters>, Arc<Counters>)>::default();
    ledger.enlist(&first);
    assert!(first.allocated(SegmentKind::Small, 512, 500));
    ledger.note(&first);
    ledger.enlist(&second);
    assert_eq!(second.limit(Row::All, Counted::Allocations), 0);
    assert!(second.allocated(SegmentKind::Small, 512, 500));
    ledger.note(&second);
    assert_eq!(ledger.stat(Counted::Allocations).all.peak, 2);
}

#[test]
fn a_heap_may_retire_after_it_gave_up_its_limit() {
    let (tracker, first, second) = <(PeakTracker, Arc<Counters>, Arc<Counters>)>::default();
    let allocate = |heap: &Arc<Counters>| {
        assert!(heap.allocated(SegmentKind::Small, 512, 500));
        tracker.note(heap);
    };
    tracker.enlist(&first);
    tracker.enlist(&second);
    allocate(&second);
    second.freed(SegmentKind::Small, 512, 500);
    allocate(&first);
    assert_eq!(tracker.stat(Counted::Allocations).all.peak, 1);
    tracker.retire(&second);
    allocate(&first);
    assert_eq!(tracker.stat(Counted::Allocations).all.peak, 2);
}

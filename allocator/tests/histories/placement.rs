//! Every address and every statistic equals that of the naive model.

use std::collections::HashMap;

use cachette::{Allocator, Error, Stats};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::HISTORIES;
use crate::fixture::{Allocation, MIB, Stream, TestAllocator};
use crate::model::{Figures, Model, Place};

const STREAMS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        stream: usize,
        bytes: u64,
    },
    /// Frees the live allocation with this index, counted round.
    Free(usize),
    EmptyCache,
    Limit(u64),
    Figures,
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (1..=8_u64).prop_map(|grains| grains * 512),
        4 => 1..=MIB,
        2 => MIB - 512..=MIB + 512,
        3 => MIB..=12 * MIB,
        1 => 9 * MIB..=40 * MIB,
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..STREAMS, sizes()).prop_map(|(stream, bytes)| Step::Allocate { stream, bytes }),
        9 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::EmptyCache),
        1 => (20..200_u64).prop_map(|mib| Step::Limit(mib * MIB)),
        1 => Just(Step::Figures),
    ];
    prop::collection::vec(step, 1..60)
}

/// The allocator beside the model, and what ties the two.
struct Pair {
    allocator: Allocator,
    streams: [Stream; STREAMS],
    model: Model,
    live: Vec<(Place, Allocation)>,
    /// Where the segments of the model are.
    bases: HashMap<(usize, usize), u64>,
}

impl Pair {
    fn new(max_split_mib: Option<u64>) -> Self {
        let bound = max_split_mib.map(|mib| format!("max_split_size_mb:{mib}"));
        let test = TestAllocator::phantom(1 << 40, &bound.unwrap_or_default());
        Self {
            streams: test.streams(),
            allocator: test.allocator,
            model: Model::new(STREAMS, u64::MAX / 2, max_split_mib.map(|mib| mib * MIB)),
            live: Vec::new(),
            bases: HashMap::new(),
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Allocate { stream, bytes } => self.allocate(stream, bytes)?,
            Step::Free(index) => {
                if !self.live.is_empty() {
                    let (place, allocation) = self.live.swap_remove(index % self.live.len());
                    self.model.free(place);
                    drop(allocation);
                }
            }
            Step::EmptyCache => {
                self.allocator.empty_cache().unwrap();
                self.model.release_all();
            }
            Step::Limit(bytes) => {
                self.allocator.set_memory_limit(Some(bytes));
                self.model.set_limit(bytes);
            }
            Step::Figures => self.compare_figures()?,
        }
        self.allocator.check().map_err(TestCaseError::fail)
    }

    fn allocate(&mut self, stream: usize, bytes: u64) -> Result<(), TestCaseError> {
        let expected = self.model.allocate(stream, bytes);
        match (self.allocator.allocate(bytes, &self.streams[stream]), expected) {
            (Ok(allocation), Some((place, size))) => {
                prop_assert_eq!(allocation.bytes(), size);
                let (base, _) = self.allocator.base_allocation(allocation.address()).unwrap();
                prop_assert_eq!(allocation.address() - base, place.offset);
                let known = self.bases.entry((stream, place.segment)).or_insert(base);
                prop_assert_eq!(*known, base);
                self.live.push((place, allocation));
            }
            (Err(Error::OutOfMemory(report)), None) => {
                prop_assert_eq!(report.requested, bytes);
            }
            (result, expected) => {
                return Err(TestCaseError::fail(format!("{result:?} but {expected:?}")));
            }
        }
        Ok(())
    }

    fn compare_figures(&self) -> Result<(), TestCaseError> {
        let stats = self.allocator.stats();
        prop_assert_eq!(figures(&stats, |stat| stat.current), self.model.figures());
        let mut peaks = figures(&stats, |stat| stat.peak);
        // A block that is freed and taken again at once is not counted as free in between.
        peaks.split = self.model.peaks.split;
        peaks.split_bytes = self.model.peaks.split_bytes;
        prop_assert_eq!(peaks, self.model.peaks);
        Ok(())
    }
}

fn figures(stats: &Stats, of: impl Fn(cachette::Stat) -> u64) -> Figures {
    Figures {
        allocations: of(stats.allocation.all),
        allocated: of(stats.allocated_bytes.all),
        requested: of(stats.requested_bytes.all),
        segments: of(stats.segment.all),
        reserved: of(stats.reserved_bytes.all),
        split: of(stats.inactive_split.all),
        split_bytes: of(stats.inactive_split_bytes.all),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(HISTORIES))]

    #[test]
    fn every_address_is_where_the_naive_model_says(steps in steps()) {
        let mut pair = Pair::new(None);
        for step in &steps {
            pair.run(step)?;
        }
        pair.compare_figures()?;
    }

    #[test]
    fn every_address_is_the_models_with_a_bound_on_splitting(
        steps in steps().prop_map(|steps| {
            // Under a limit the bound adds a retry step that the model does not have.
            steps.into_iter().filter(|step| !matches!(step, Step::Limit(_))).collect::<Vec<_>>()
        }),
        bound in 20..40_u64,
    ) {
        let mut pair = Pair::new(Some(bound));
        for step in &steps {
            pair.run(step)?;
        }
        pair.compare_figures()?;
    }

    #[test]
    fn t4_the_peak_of_free_parts_is_never_overstated(steps in steps()) {
        let mut pair = Pair::new(None);
        for step in &steps {
            match step {
                Step::Allocate { bytes, .. } => pair.run(&Step::Allocate { stream: 0, bytes: *bytes })?,
                Step::Limit(_) => {}
                other => pair.run(other)?,
            }
        }
        let peaks = figures(&pair.allocator.stats(), |stat| stat.peak);
        let model = pair.model.peaks;
        prop_assert!(peaks.split <= model.split && peaks.split_bytes <= model.split_bytes);
        prop_assert!(pair.model.figures().split <= peaks.split);
    }
}

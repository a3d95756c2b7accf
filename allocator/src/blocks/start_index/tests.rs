//! The start index, compared with a map.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::blocks::start_index::*;

/// An index, and blocks that begin at the offsets of a model.
struct Model {
    starts: StartIndex,
    blocks: BlockTable,
    known: HashMap<u32, BlockId>,
}

impl Model {
    fn new(starts: StartIndex) -> Self {
        Self { starts, blocks: BlockTable::default(), known: HashMap::new() }
    }

    /// A new block begins at an offset, instead of the previous one.
    fn note(&mut self, offset: u32) -> BlockId {
        self.merge(offset);
        let id = self.blocks.claim().expect("there is room");
        self.blocks[id].rank = u64::from(offset);
        self.blocks[id].indexed = true;
        self.starts.note(&self.blocks, offset, id);
        self.known.insert(offset, id);
        id
    }

    /// The block at an offset no longer exists. Its entry stays.
    fn merge(&mut self, offset: u32) {
        if let Some(id) = self.known.remove(&offset) {
            self.blocks.remove(id);
        }
    }

    fn check(&self) {
        for (offset, id) in &self.known {
            assert_eq!(self.starts.hint(*offset), *id, "at {offset}");
        }
    }

    fn parts(&self) -> &[StartPart] {
        let StartIndex::Parts(parts) = &self.starts else { panic!("an elastic segment has parts") };
        parts
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_block_is_found_at_its_offset(
        history in prop::collection::vec((0..5_u32, 0..12_u32, any::<bool>()), 0..80),
    ) {
        let mut model = Model::new(StartIndex::Parts(Vec::new()));
        for (part, within, merges) in history {
            // Few places in each of a few parts far apart, so that notes meet.
            let offset = ((part * 9) << PART_SHIFT) | (within * 341);
            if merges {
                model.merge(offset);
            } else {
                model.note(offset);
            }
            model.check();
        }
        prop_assert!(!model.starts.hint(1 << 30).is_some(), "nothing was noted there");
    }

    #[test]
    fn large_segments_know_every_block_longer_than_the_small_limit(stretches in prop::collection::vec(0..32_u32, 0..40)) {
        let mut model = Model::new(StartIndex::even(64 << 20, SegmentKind::Large));
        for stretch in stretches {
            model.note(stretch * 4096);
            model.check();
        }
    }
}

#[test]
fn a_part_with_one_block_costs_one_entry() {
    let mut model = Model::new(StartIndex::Parts(Vec::new()));
    for offset in [0, 0, 1, 2, 3] {
        (0..4).for_each(|before| model.merge((7 << PART_SHIFT) + before));
        model.note((7 << PART_SHIFT) + offset);
    }
    model.check();
    assert!(model.parts().iter().all(|part| matches!(part, StartPart::One(..))));
}

#[test]
fn a_part_with_few_blocks_at_a_time_has_no_table() {
    let mut model = Model::new(StartIndex::Parts(Vec::new()));
    for offset in 0..1000 {
        model.note(offset);
        if let Some(before) = offset.checked_sub(7) {
            model.merge(before);
        }
        model.check();
    }
    assert!(matches!(model.parts(), [StartPart::Few(_)]));
    (0..2).for_each(|more| {
        model.note(2000 + more);
    });
    model.check();
    assert!(matches!(model.parts(), [StartPart::Many(_)]), "nine blocks begin here");
}

//! The start index, compared with a map.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::blocks::start_index::*;
use crate::blocks::table::BlockTable;

fn ids() -> Vec<BlockId> {
    let mut blocks = BlockTable::default();
    (0..64).map_while(|_| blocks.claim()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_was_noted_last_at_an_offset_is_found_there(
        history_state in prop::collection::vec((0..5_u32, 0..12_u32, 0..64_usize), 0..80),
    ) {
        let ids = ids();
        let mut starts = StartIndex::parts();
        let mut model: HashMap<u32, BlockId> = HashMap::new();
        for (part, within, id) in history_state {
            // Few places in each of a few parts far apart, so that notes meet.
            let offset = ((part * 9) << PART_SHIFT) | (within * 341);
            starts.note(offset, ids[id]);
            model.insert(offset, ids[id]);
            for (offset, id) in &model {
                prop_assert_eq!(starts.hint(*offset), *id);
            }
        }
        prop_assert!(!starts.hint(1 << 30).is_some(), "nothing was noted there");
    }

    #[test]
    fn large_segments_know_every_block_longer_than_the_small_limit(
        history_state in prop::collection::vec((0..32_u32, 0..64_usize), 0..40),
    ) {
        let ids = ids();
        let mut starts = StartIndex::even(64 << 20, SegmentKind::Large);
        let mut model: HashMap<u32, BlockId> = HashMap::new();
        for (stretch, id) in history_state {
            let offset = stretch * 4096;
            starts.note(offset, ids[id]);
            model.insert(offset, ids[id]);
            for (offset, id) in &model {
                prop_assert_eq!(starts.hint(*offset), *id);
            }
        }
    }
}

#[test]
fn a_part_with_one_block_costs_one_entry() {
    let ids = ids();
    let mut starts = StartIndex::parts();
    starts.note(7 << PART_SHIFT, ids[0]);
    starts.note(7 << PART_SHIFT, ids[1]);
    let StartIndex::Parts(parts) = &starts else {
        panic!("an elastic segment has parts");
    };
    assert!(parts.iter().all(|part| matches!(part, StartPart::One(..))));
    starts.note((7 << PART_SHIFT) + 1, ids[2]);
    assert_eq!(starts.hint(7 << PART_SHIFT), ids[1]);
    assert_eq!(starts.hint((7 << PART_SHIFT) + 1), ids[2]);
}

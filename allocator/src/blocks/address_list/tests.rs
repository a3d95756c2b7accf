//! The address list, compared with a simple sorted list.

use proptest::prelude::*;

use crate::blocks::address_list::*;

#[derive(Clone, Debug)]
enum Step {
    /// Lists a block of so many grains at a place.
    Insert {
        place: u64,
        units: u32,
    },
    Remove(usize),
    /// Another block takes over: it begins so much later, and has so many grains.
    Replace {
        index: usize,
        later: u64,
        units: u32,
    },
    First(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..1000_u64, 1..50_u32).prop_map(|(place, units)| Step::Insert { place: place * 8, units }),
        6 => any::<usize>().prop_map(Step::Remove),
        4 => (any::<usize>(), 0..8_u64, 1..50_u32)
            .prop_map(|(index, later, units)| Step::Replace { index, later, units }),
        4 => (1..60_u32).prop_map(Step::First),
    ];
    prop::collection::vec(step, 1..600)
}

/// A block of so many grains at a place.
fn block_at(blocks: &mut BlockTable, place: u64, units: u32) -> BlockId {
    let id = blocks.claim().expect("there is room");
    blocks[id].rank = place ^ (0xFFFF_FFFF << 32);
    blocks[id].units = units;
    assert_eq!(blocks[id].place(), place);
    id
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_list_finds_what_a_simple_one_finds(steps in steps()) {
        let (mut places, mut blocks) = (AddressList::default(), BlockTable::default());
        // By place: the block and its grains.
        let mut model: Vec<(u64, BlockId, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert { place, units } => {
                    // Whole multiples of 8, and what took one over.
                    if model.iter().any(|(known, ..)| known / 8 == place / 8) {
                        continue;
                    }
                    let id = block_at(&mut blocks, place, units);
                    places.insert(&blocks, id);
                    model.push((place, id, units));
                    model.sort_unstable_by_key(|(place, ..)| *place);
                }
                Step::Remove(index) if !model.is_empty() => {
                    let (place, id, _) = model.remove(index % model.len());
                    places.remove(place);
                    blocks.remove(id);
                }
                Step::Replace { index, later, units } if !model.is_empty() => {
                    let index = index % model.len();
                    let (place, old, _) = model[index];
                    let id = block_at(&mut blocks, place / 8 * 8 + later, units);
                    let entry = places.at(place);
                    prop_assert_eq!(entry.id, old);
                    places.replace(&blocks, entry, id);
                    blocks.remove(old);
                    model[index] = (place / 8 * 8 + later, id, units);
                }
                Step::Remove(_) | Step::Replace { .. } => {}
                Step::First(units) => {
                    let first = model.iter().position(|(.., has)| *has >= units);
                    let found = places.first(units);
                    prop_assert_eq!(found.map(|entry| entry.id), first.map(|index| model[index].1));
                    // The rest of the block takes over, as after a split.
                    if let (Some(entry), Some(index)) = (found, first) {
                        let (place, old, has) = model[index];
                        if has > units {
                            let id = block_at(&mut blocks, place, has - units);
                            places.replace(&blocks, entry, id);
                            blocks.remove(old);
                            model[index] = (place, id, has - units);
                        }
                    }
                }
            }
        }
        prop_assert!(places.agrees(&blocks));
        let expected: Vec<_> = model.iter().map(|(_, id, _)| *id).collect();
        prop_assert_eq!(places.iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn leaves_that_few_blocks_are_left_in_become_one() {
    let (mut places, mut blocks) = (AddressList::default(), BlockTable::default());
    for place in 0..10_000 {
        let id = block_at(&mut blocks, place, 1);
        places.insert(&blocks, id);
    }
    for place in (0..10_000).filter(|place| place % 100 != 0) {
        places.remove(place);
    }
    assert!(places.agrees(&blocks));
    assert_eq!(places.iter().count(), 100);
    assert!(places.leaves.len() <= 10, "{} leaves", places.leaves.len());
}

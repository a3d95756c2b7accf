//! The tree beside a sorted list.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Lists a block of so many grains at a place.
    Insert {
        place: u64,
        grains: u32,
    },
    Remove(usize),
    First(u32),
    AtLeast(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..200_u64, 1..50_u32).prop_map(|(place, grains)| Step::Insert { place, grains }),
        4 => any::<usize>().prop_map(Step::Remove),
        4 => (1..60_u32).prop_map(Step::First),
        2 => (0..60_u32).prop_map(Step::AtLeast),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_finds_what_a_sorted_list_finds(steps in steps()) {
        let (mut tree, mut blocks) = (AddressTree::default(), BlockTable::default());
        // By place: the block and its grains.
        let mut model: Vec<(u64, BlockId, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert { place, grains } => {
                    if model.iter().any(|(known, ..)| *known == place) {
                        continue;
                    }
                    let id = blocks.claim().expect("there is room");
                    blocks[id].rank = place ^ (0xFFFF_FFFF << 32);
                    blocks[id].grains = grains;
                    prop_assert_eq!(blocks[id].place(), place);
                    tree.insert(&mut blocks, id);
                    model.push((place, id, grains));
                    model.sort_unstable_by_key(|(place, ..)| *place);
                }
                Step::Remove(index) => {
                    if model.is_empty() {
                        continue;
                    }
                    let (_, id, _) = model.remove(index % model.len());
                    tree.remove(&mut blocks, id);
                    blocks.remove(id);
                }
                Step::First(grains) => {
                    let first = model.iter().find(|(.., has)| *has >= grains);
                    let expected = first.map_or(BlockId::NONE, |(_, id, _)| *id);
                    prop_assert_eq!(tree.first(&blocks, grains), expected);
                }
                Step::AtLeast(grains) => {
                    let fitting = model.iter().filter(|(.., has)| *has >= grains);
                    let expected: Vec<_> = fitting.map(|(_, id, _)| *id).collect();
                    prop_assert_eq!(tree.at_least(&blocks, grains), expected);
                }
            }
        }
    }
}

#[test]
fn blocks_listed_in_order_make_no_deep_tree() {
    let (mut tree, mut blocks) = (AddressTree::default(), BlockTable::default());
    for place in 0..100_000_u64 {
        let id = blocks.claim().expect("there is room");
        blocks[id].rank = place ^ (0xFFFF_FFFF << 32);
        blocks[id].grains = 1;
        tree.insert(&mut blocks, id);
    }
    let depth = depth(&blocks, tree.root);
    assert!(depth < 100, "{depth} levels");
}

fn depth(blocks: &BlockTable, at: BlockId) -> usize {
    if !at.is_some() {
        return 0;
    }
    1 + depth(blocks, blocks[at].left).max(depth(blocks, blocks[at].right))
}

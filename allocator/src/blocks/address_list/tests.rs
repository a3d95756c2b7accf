//! The address list, compared with a simple sorted list.

use proptest::prelude::*;

use crate::blocks::address_list::*;

/// The units of all blocks together.
const GRAINS: u32 = 20_000;

#[derive(Clone, Debug)]
enum Step {
    /// Allocates so many units at the start of the first free block that fits.
    Allocate(u32),
    /// Allocates a whole free block.
    Take(usize),
    /// Frees an allocated block, and merges it with its free neighbours.
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (1..30_u32).prop_map(Step::Allocate),
        2 => (1..2000_u32).prop_map(Step::Allocate),
        1 => any::<usize>().prop_map(Step::Take),
        10 => any::<usize>().prop_map(Step::Free),
    ];
    prop::collection::vec(step, 1..2000)
}

/// Free and allocated ranges of units, as the list and as two simple lists.
struct Model {
    places: AddressList,
    blocks: BlockTable,
    /// In order: the first unit, the end and the block.
    free: Vec<(u32, u32, BlockId)>,
    allocated: Vec<(u32, u32)>,
}

impl Model {
    /// Every second block of `pieces` is free, and so is the end.
    fn new(pieces: &[u32]) -> Self {
        let mut model = Self {
            places: AddressList::default(),
            blocks: BlockTable::default(),
            free: Vec::new(),
            allocated: Vec::new(),
        };
        let mut at = 0;
        for piece in pieces {
            model.allocated.push((at, at + piece));
            at += piece;
        }
        model.insert(at, GRAINS);
        for index in (0..pieces.len()).step_by(2).rev() {
            model.free(index);
        }
        model
    }

    fn block(&mut self, at: u32, end: u32) -> BlockId {
        let id = self.blocks.claim().expect("there is room");
        self.blocks[id].rank = u64::from(at) ^ (0xFFFF_FFFF << 32);
        self.blocks[id].units = end - at;
        id
    }

    fn insert(&mut self, at: u32, end: u32) {
        let id = self.block(at, end);
        self.places.insert(&mut self.blocks, id);
        self.free.push((at, end, id));
        self.free.sort_unstable();
    }

    fn remove(&mut self, index: usize) -> (u32, u32) {
        let (at, end, id) = self.free.remove(index);
        self.places.remove(&mut self.blocks, id);
        self.blocks.remove(id);
        (at, end)
    }

    /// The range takes over the slot of a free block.
    fn replace(&mut self, index: usize, at: u32, end: u32) {
        let old = self.free[index].2;
        let slot = self.blocks[old].slot;
        self.blocks.remove(old);
        let id = self.block(at, end);
        self.places.replace(&mut self.blocks, slot, id);
        self.free[index] = (at, end, id);
    }

    fn allocate(&mut self, units: u32) {
        let first = self.free.iter().position(|(at, end, _)| end - at >= units);
        let found = self.places.first(&self.blocks, units);
        assert_eq!(found, first.map(|index| self.free[index].2));
        let Some(index) = first else { return };
        let (at, end, _) = self.free[index];
        if end - at > units {
            self.replace(index, at + units, end);
        } else {
            self.remove(index);
        }
        self.allocated.push((at, at + units));
    }

    fn free(&mut self, index: usize) {
        let (at, end) = self.allocated.swap_remove(index);
        let before = self.free.iter().position(|(_, other, _)| *other == at);
        let after = self.free.iter().position(|(other, ..)| *other == end);
        match (before, after) {
            (None, None) => self.insert(at, end),
            (Some(before), None) => self.replace(before, self.free[before].0, end),
            (None, Some(after)) => self.replace(after, at, self.free[after].1),
            (Some(before), Some(after)) => {
                let (_, end) = self.remove(after);
                self.replace(before, self.free[before].0, end);
            }
        }
    }

    fn check(&self) {
        assert!(self.places.agrees(&self.blocks));
        assert!(self.places.iter().eq(self.free.iter().map(|(.., id)| *id)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_list_finds_what_a_simple_one_finds(pieces in prop::collection::vec(1..30_u32, 0..500), steps in steps()) {
        let mut model = Model::new(&pieces);
        for step in steps {
            match step {
                Step::Allocate(units) => model.allocate(units),
                Step::Take(index) if !model.free.is_empty() => {
                    let range = model.remove(index % model.free.len());
                    model.allocated.push(range);
                }
                Step::Free(index) if !model.allocated.is_empty() => model.free(index % model.allocated.len()),
                Step::Take(_) | Step::Free(_) => {}
            }
            model.check();
        }
    }
}

#[test]
fn a_block_before_those_of_a_split_leaf_goes_there() {
    let mut model = Model::new(&[]);
    model.remove(0);
    // Two leaves, both full; the second begins at 3200.
    let halves = (0..32).chain(32..63).map(|hundred| hundred * 100 + 50);
    for at in (0..65).map(|hundred| hundred * 100).chain(halves) {
        model.insert(at, at + 1);
    }
    let second = model.free.iter().position(|(at, ..)| *at == 3200).expect("it is free");
    model.remove(second);
    model.insert(6450, 6451);
    assert_eq!(model.places.order.len(), 2);
    // It belongs before all blocks of the second leaf, and the first leaf has no room.
    model.insert(3220, 3221);
    model.check();
}

#[test]
fn a_search_lowers_a_bound_even_if_blocks_have_the_class_of_the_request() {
    let mut pieces = vec![17; 200];
    pieces[0] = 30;
    let mut model = Model::new(&pieces);
    model.remove(model.free.len() - 1);
    model.remove(0);
    assert_eq!(model.places.bounds[0], 30);
    model.allocate(18);
    let bounds = &model.places.bounds[..model.places.order.len()];
    assert!(bounds.iter().all(|bound| *bound == 17), "{bounds:?}");
    model.check();
}

#[test]
fn a_search_goes_on_in_every_row_of_leaves() {
    let mut pieces = vec![1; 4000];
    pieces[3000] = 9;
    let mut model = Model::new(&pieces);
    model.remove(model.free.len() - 1);
    assert!(model.places.order.len() > 3 * ROW);
    model.allocate(9);
    model.allocate(1);
    model.check();
}

#[test]
fn leaves_that_few_blocks_are_left_in_become_one() {
    let mut model = Model::new(&vec![1; 10_000]);
    model.check();
    for index in (0..model.free.len()).rev().filter(|index| index % 50 != 0) {
        model.remove(index);
    }
    model.check();
    assert!(model.places.order.len() <= 20, "{} leaves", model.places.order.len());
}

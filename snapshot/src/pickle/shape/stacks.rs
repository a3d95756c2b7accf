//! Call stacks.

use super::super::key;
use super::super::tree::{Node, Value};
use super::{Builder, Made, holds};
use crate::budget::Budget;
use crate::{Excess, Frame, StackId, Stacks};

/// No number is assigned yet.
const UNKNOWN: u32 = u32::MAX;

/// Stacks, and the numbers of known containers: a list that many events share is converted once.
#[derive(Default)]
pub(super) struct Interned {
    stacks: Stacks,
    /// The number of a frame, by its container.
    frames: Vec<u32>,
    /// The number of a stack, by its container.
    lists: Vec<u32>,
}

impl Interned {
    /// Reserves room for a tree of this many containers.
    pub(super) fn make_room(&mut self, nodes: usize, budget: &Budget) -> Result<(), Excess> {
        for numbers in [&mut self.frames, &mut self.lists] {
            budget.reserve(numbers, nodes)?;
            numbers.resize(nodes, UNKNOWN);
        }
        Ok(())
    }

    pub(super) fn into_stacks(self) -> Stacks {
        self.stacks
    }
}

impl Builder<'_, '_> {
    /// Returns the stack of a list of frames; none for None.
    pub(super) fn stack(&mut self, value: Value) -> Made<StackId> {
        let (Value::List(node) | Value::Tuple(node)) = value else {
            return match value {
                Value::None => Ok(StackId::NONE),
                other => Err(self.amiss(None, "'frames'", holds(other, "no list"))),
            };
        };
        let known = self.interned.lists[node.0 as usize];
        if known != UNKNOWN {
            return Ok(StackId(known));
        }
        let mut numbers = Vec::new();
        for value in self.tree.values(node) {
            let number = self.frame(value, node)?;
            self.reserve(&mut numbers, node)?;
            numbers.push(number);
        }
        let budget = self.tree.budget;
        self.within(node, budget.charge_stack(numbers.len()))?;
        let id = self.interned.stacks.add_numbers(numbers);
        self.interned.lists[node.0 as usize] = id.0;
        Ok(id)
    }

    /// Returns the number of a frame. A frame that is only a text, a line of a traceback, has no file.
    fn frame(&mut self, value: Value, list: Node) -> Made<u32> {
        let node = match value {
            Value::Dict(node) => node,
            Value::Text { .. } => {
                let name = self.tree.text(value).unwrap_or_default();
                let name = name.strip_suffix('\n').unwrap_or(&name).to_owned();
                return self.add_frame(list, Frame { name, ..Frame::default() });
            }
            other => return Err(self.amiss(Some(list), "a frame", holds(other, "no dict"))),
        };
        let known = self.interned.frames[node.0 as usize];
        if known != UNKNOWN {
            return Ok(known);
        }
        let (mut name, mut file, mut line) = (Value::None, Value::None, 0);
        for (key, value) in self.tree.entries(node) {
            match (self.word(key), value) {
                (key::NAME, _) => name = value,
                (key::FILENAME, _) => file = value,
                (key::LINE, Value::Integer(found)) => line = u32::try_from(found).unwrap_or(0),
                _ => (),
            }
        }
        // Decoded only here, since a dict may contain a key many times.
        let text = |value| self.tree.text(value).unwrap_or_default().into_owned();
        let frame = Frame { name: text(name), file: text(file), line };
        let number = self.add_frame(node, frame)?;
        self.interned.frames[node.0 as usize] = number;
        Ok(number)
    }

    fn add_frame(&mut self, node: Node, frame: Frame) -> Made<u32> {
        self.within(node, self.tree.budget.charge_frame(&frame))?;
        Ok(self.interned.stacks.add_frame(frame))
    }
}

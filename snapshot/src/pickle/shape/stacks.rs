//! Stacks of calls.

use super::super::key;
use super::super::tree::{Node, Value};
use super::{Builder, Made, holds};
use crate::{Frame, StackId, Stacks};

/// No number was given yet.
const UNKNOWN: u32 = u32::MAX;

/// Stacks, and the numbers of those that were met: a list that many events share is looked at once.
pub(super) struct Interned {
    stacks: Stacks,
    /// The number of a frame, by the container that holds it.
    frames: Vec<u32>,
    /// The number of a stack, by the container that holds it.
    lists: Vec<u32>,
}

impl Interned {
    /// For a tree of this many containers.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            stacks: Stacks::new(),
            frames: vec![UNKNOWN; nodes],
            lists: vec![UNKNOWN; nodes],
        }
    }

    pub(super) fn into_stacks(self) -> Stacks {
        self.stacks
    }
}

impl Builder<'_, '_> {
    /// The stack of a list of frames; none for None.
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
        let values = self.tree.values(node);
        let numbers: Vec<u32> = values
            .map(|value| self.frame(value, node))
            .collect::<Made<_>>()?;
        let room = self.budget.charge::<u32>(2 * numbers.len());
        room.map_err(|problem| self.failure(Some(node), problem))?;
        let id = self.interned.stacks.add_numbers(numbers);
        self.interned.lists[node.0 as usize] = id.0;
        Ok(id)
    }

    /// The number of a frame; one that is only a text has no file.
    fn frame(&mut self, value: Value, list: Node) -> Made<u32> {
        let node = match value {
            Value::Dict(node) => node,
            Value::Text { .. } => {
                let name = self.tree.text(value).unwrap_or_default();
                let name = name.trim_end().to_owned();
                return self.add_frame(
                    list,
                    Frame {
                        name,
                        ..Frame::default()
                    },
                );
            }
            other => return Err(self.amiss(Some(list), "a frame", holds(other, "no dict"))),
        };
        let known = self.interned.frames[node.0 as usize];
        if known != UNKNOWN {
            return Ok(known);
        }
        let mut frame = Frame::default();
        for (name, value) in self.tree.entries(node) {
            let text = || self.tree.text(value).unwrap_or_default().into_owned();
            match (self.word(name), value) {
                (key::NAME, _) => frame.name = text(),
                (key::FILENAME, _) => frame.file = text(),
                (key::LINE, Value::Integer(line)) => frame.line = u32::try_from(line).unwrap_or(0),
                _ => (),
            }
        }
        let number = self.add_frame(node, frame)?;
        self.interned.frames[node.0 as usize] = number;
        Ok(number)
    }

    fn add_frame(&mut self, node: Node, frame: Frame) -> Made<u32> {
        let bytes = size_of::<Frame>() + frame.name.len() + frame.file.len();
        self.charge_text(2 * bytes, node)?;
        Ok(self.interned.stacks.add_frame(frame))
    }
}

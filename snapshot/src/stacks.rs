//! Call stacks, each stored once.

use std::collections::HashMap;

/// The number of a stack in a snapshot; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize))]
pub struct StackId(pub u32);

impl StackId {
    /// No stack.
    pub const NONE: Self = Self(0);
}

/// A location in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// The file.
    pub file: String,
    /// The line; zero if unknown.
    pub line: u32,
}

/// Call stacks and frames, each stored once.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    frames: Vec<Frame>,
    frame_numbers: HashMap<Frame, u32>,
    /// By [`StackId`] minus one: the numbers of frames, innermost first.
    lists: Vec<Box<[u32]>>,
    list_numbers: HashMap<Box<[u32]>, StackId>,
}

impl Stacks {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the stack of these frames, innermost first; none for no frames.
    pub fn add(&mut self, frames: impl IntoIterator<Item = Frame>) -> StackId {
        let numbers: Vec<u32> = frames.into_iter().map(|f| self.add_frame(f)).collect();
        self.add_numbers(numbers)
    }

    /// Returns the number of a frame, for [`add_numbers`](Self::add_numbers).
    ///
    /// # Panics
    ///
    /// If there are four billion frames.
    pub fn add_frame(&mut self, frame: Frame) -> u32 {
        if let Some(&number) = self.frame_numbers.get(&frame) {
            return number;
        }
        let number = u32::try_from(self.frames.len()).expect("fewer frames than that");
        self.frames.push(frame.clone());
        self.frame_numbers.insert(frame, number);
        number
    }

    /// Returns the stack of frames with these numbers, innermost first. Unknown numbers are skipped.
    ///
    /// # Panics
    ///
    /// If there are four billion stacks.
    pub fn add_numbers(&mut self, mut numbers: Vec<u32>) -> StackId {
        numbers.retain(|&number| (number as usize) < self.frames.len());
        if numbers.is_empty() {
            return StackId::NONE;
        }
        let numbers = numbers.into_boxed_slice();
        if let Some(&id) = self.list_numbers.get(&numbers) {
            return id;
        }
        self.lists.push(numbers.clone());
        let id = StackId(u32::try_from(self.lists.len()).expect("fewer stacks than that"));
        self.list_numbers.insert(numbers, id);
        id
    }

    /// The frames of a stack, innermost first; empty for an unknown stack.
    #[must_use]
    pub fn frames_of(&self, id: StackId) -> impl ExactSizeIterator<Item = &Frame> {
        self.numbers_of(id).iter().map(|&number| &self.frames[number as usize])
    }

    /// The numbers of a stack's frames in [`frames`](Self::frames).
    #[must_use]
    pub fn numbers_of(&self, id: StackId) -> &[u32] {
        let index = (id.0 as usize).wrapping_sub(1);
        self.lists.get(index).map_or(&[], |stack| stack)
    }

    /// Every distinct frame, by number.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Every stack, without `NONE`.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (1..=u32::try_from(self.lists.len()).unwrap_or(u32::MAX)).map(StackId)
    }

    /// The number of stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Returns whether there are no stacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

impl PartialEq for Stacks {
    fn eq(&self, other: &Self) -> bool {
        (&self.frames, &self.lists) == (&other.frames, &other.lists)
    }
}

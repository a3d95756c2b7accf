//! Call stacks, each stored once.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

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

impl Frame {
    /// Returns whether it is a frame of a Python program.
    #[must_use]
    pub fn is_python(&self) -> bool {
        Path::new(&self.file).extension().is_some_and(|end| end == "py") || self.file.starts_with('<')
    }

    /// Returns whether its function is known. Otherwise the name is a place in an object file, or an address.
    #[must_use]
    pub fn is_named(&self) -> bool {
        let is_hex = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_place = self
            .name
            .rsplit_once("0x")
            .is_some_and(|(before, digits)| is_hex(digits) && (before.is_empty() || before.ends_with('+')));
        !self.name.is_empty() && !self.name.starts_with("??") && !is_place
    }

    /// Returns the index of the frame that stands for a stack: the innermost one of Python, or else with a name.
    #[must_use]
    pub fn site(frames: &[&Self]) -> Option<usize> {
        let first = |wanted: fn(&Self) -> bool| frames.iter().position(|frame| wanted(frame));
        first(Self::is_python).or_else(|| first(Self::is_named)).or((!frames.is_empty()).then_some(0))
    }
}

/// The function with its file and line, as far as they are known: `weights train.py:7`.
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, file, line } = self;
        let file = file.rsplit('/').next().unwrap_or(file);
        f.write_str(if name.is_empty() { "an unnamed function" } else { name })?;
        match (file, line) {
            ("", _) => Ok(()),
            (_, 0) => write!(f, " {file}"),
            _ => write!(f, " {file}:{line}"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, file: &str, line: u32) -> Frame {
        Frame { name: name.to_owned(), file: file.to_owned(), line }
    }

    #[test]
    fn a_frame_is_shown_with_the_last_part_of_its_path() {
        for (name, file, line, text) in [
            ("weights", "/home/me/train.py", 7, "weights train.py:7"),
            ("main::step", "", 0, "main::step"),
            ("main", "h.c", 0, "main h.c"),
            ("libx.so+0x1f", "", 0, "libx.so+0x1f"),
        ] {
            assert_eq!(frame(name, file, line).to_string(), text);
        }
    }

    #[test]
    fn the_innermost_frame_of_python_or_with_a_name_stands_for_a_stack() {
        let unnamed = ["0x7f88731bdbf1", "libc.so.6+0x1f", "?? 3", ""].map(|name| frame(name, "", 0));
        let (named, python) = (frame("grow", "a.c", 1), frame("weights", "train.py", 7));
        let site = |frames: &[&Frame]| Frame::site(frames);
        let mut frames: Vec<&Frame> = unnamed.iter().collect();
        assert_eq!((site(&[]), site(&frames)), (None, Some(0)));
        frames.push(&named);
        assert_eq!(site(&frames), Some(4));
        frames.push(&python);
        assert_eq!(site(&frames), Some(5));
        assert!(frame("a+0xfg", "", 0).is_named());
        assert!(frame("step", "<stdin>", 1).is_python());
    }
}

//! The plain data of a pickle: values, and containers that may be shared.

use crate::budget::Budget;
use crate::{Excess, PickleProblem};

/// A problem, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) offset: u64,
    pub(super) problem: PickleProblem,
}

/// A value; containers are referred to by their index in the [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Integer(i64),
    /// A whole number that needs its 64th bit.
    Large(u64),
    /// A whole number that is larger than any in a snapshot.
    Huge,
    Float(f64),
    /// The position of a text in the file. It may not be valid UTF-8.
    Text {
        start: u32,
        length: u32,
    },
    /// Bytes, which snapshots do not use.
    Bytes,
    Tuple(Node),
    List(Node),
    Dict(Node),
}

impl Value {
    /// The name of its type in an error.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Integer(_) | Self::Large(_) | Self::Huge => "a whole number",
            Self::Float(_) => "a fraction",
            Self::Text { .. } => "a text",
            Self::Bytes => "bytes",
            Self::Tuple(_) => "a tuple",
            Self::List(_) => "a list",
            Self::Dict(_) => "a dict",
        }
    }
}

/// The index of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node(pub(super) u32);

/// A container: runs of values in [`Tree::items`]; for a dict, alternating keys and values.
#[derive(Clone, Debug, Default)]
struct Container {
    /// The offset of its start in the file.
    offset: u32,
    /// The first run; the only one, if the container was filled at once.
    first: Run,
    more: Vec<Run>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u32,
    end: u32,
}

/// The data of a pickle.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    /// The file.
    pub(super) bytes: &'a [u8],
    pub(super) root: Value,
    items: Vec<Value>,
    containers: Vec<Container>,
    pub(super) budget: &'a Budget,
}

impl<'a> Tree<'a> {
    pub(super) fn new(bytes: &'a [u8], budget: &'a Budget) -> Self {
        Self { bytes, root: Value::None, items: Vec::new(), containers: Vec::new(), budget }
    }

    pub(super) const fn nodes(&self) -> usize {
        self.containers.len()
    }

    /// Adds an empty container that begins at `offset`.
    pub(super) fn add(&mut self, offset: usize) -> Result<Node, PickleProblem> {
        self.budget.reserve(&mut self.containers, 1)?;
        let node = Node(short(self.containers.len())?);
        self.containers.push(Container { offset: short(offset)?, ..Container::default() });
        Ok(node)
    }

    /// Appends values to a container.
    pub(super) fn extend(&mut self, node: Node, values: &[Value]) -> Result<(), PickleProblem> {
        if values.is_empty() {
            return Ok(());
        }
        self.budget.reserve(&mut self.items, values.len())?;
        let start = short(self.items.len())?;
        self.items.extend_from_slice(values);
        let end = short(self.items.len())?;
        let container = &mut self.containers[node.0 as usize];
        let last = container.more.last_mut().unwrap_or(&mut container.first);
        if last.start == last.end {
            *last = Run { start, end };
        } else if last.end == start {
            last.end = end;
        } else {
            self.budget.reserve(&mut container.more, 1)?;
            container.more.push(Run { start, end });
        }
        Ok(())
    }

    /// Returns the offset of a container in the file.
    pub(super) fn offset_of(&self, node: Node) -> u64 {
        self.containers[node.0 as usize].offset.into()
    }

    pub(super) fn values(&self, node: Node) -> impl Iterator<Item = Value> + '_ {
        self.runs(node).flatten().copied()
    }

    /// The keys and values of a dict.
    pub(super) fn entries(&self, node: Node) -> impl Iterator<Item = (Value, Value)> + '_ {
        // Keys and values are added in pairs, so no pair is split over two runs.
        self.runs(node).flat_map(|run| run.chunks_exact(2).map(|pair| (pair[0], pair[1])))
    }

    fn runs(&self, node: Node) -> impl Iterator<Item = &[Value]> + '_ {
        let container = &self.containers[node.0 as usize];
        let runs = std::iter::once(&container.first).chain(&container.more);
        runs.map(|run| &self.items[run.start as usize..run.end as usize])
    }

    /// Returns the number of values in a container.
    pub(super) fn len(&self, node: Node) -> usize {
        self.runs(node).map(<[Value]>::len).sum()
    }

    /// Returns a text, if the value is one. Invalid UTF-8 is replaced.
    pub(super) fn text(&self, value: Value) -> Option<std::borrow::Cow<'a, str>> {
        self.raw(value).map(String::from_utf8_lossy)
    }

    /// The bytes of a text, if the value is one.
    pub(super) fn raw(&self, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text { start, length } => {
                let start = start as usize;
                Some(&self.bytes[start..start + length as usize])
            }
            _ => None,
        }
    }
}

/// Converts to 32 bits; files and their contents have fewer than four billion of anything.
pub(super) fn short(number: usize) -> Result<u32, PickleProblem> {
    u32::try_from(number)
        .map_err(|_| PickleProblem::Excess(Excess::TooMany { what: "is more in it", limit: u32::MAX.into() }))
}

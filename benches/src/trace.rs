//! What a program asked of its allocator, recorded.

mod error;
mod parse;

use std::path::Path;

pub use error::{TraceError, TraceProblem};

/// One thing a program asked for.
///
/// A slot is a number for what is live: it is given to another allocation once it is free, so that the table of
/// live allocations stays as small as the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Memory was asked for.
    Allocate {
        /// Where it is kept.
        slot: u32,
        /// The stream, numbered from 0 in order of appearance.
        stream: u32,
        /// Bytes, before any rounding.
        bytes: u64,
    },
    /// Memory was given back.
    Free {
        /// Where it was kept.
        slot: u32,
    },
}

/// What a program asked of its allocator, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    pub(crate) name: String,
    pub(crate) operations: Vec<Operation>,
    /// Every slot is below this.
    pub(crate) slots: usize,
    /// Every stream is below this.
    pub(crate) streams: usize,
    pub(crate) peak_requested: u64,
}

impl Trace {
    /// Reads a trace, packed by gzip or not.
    ///
    /// One line is one operation: `a ID SIZE STREAM` or `f ID`.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        parse::open(path)
    }

    /// The file's name without folder and endings.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was asked for, one for each line of the file.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The most bytes that were live at once, before any rounding.
    #[must_use]
    pub const fn peak_requested(&self) -> u64 {
        self.peak_requested
    }
}

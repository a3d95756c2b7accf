//! Traces: recorded allocations and frees.

mod build;
mod error;
mod parse;
mod recorded;

use std::path::Path;

pub use error::{TraceError, TraceProblem};
pub use recorded::Recorded;

/// An operation of a trace.
///
/// A slot is the index of a live allocation. Free slots are reused, so that the table of live allocations stays small.
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

/// The operations of a program, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub(crate) name: String,
    pub(crate) operations: Vec<Operation>,
    /// Every slot is below this.
    pub(crate) slots: usize,
    /// Every stream is below this.
    pub(crate) streams: usize,
    pub(crate) peak_requested: u64,
    pub(crate) recorded: Option<Recorded>,
}

impl Trace {
    /// Reads a trace, packed by gzip or not.
    ///
    /// One line is one operation, `a ID SIZE STREAM` or `f ID`, or a comment that begins with `#`.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        parse::open(path)
    }

    /// Reads the history of one device from a snapshot; without `device`, of the only one that has a history.
    ///
    /// Every allocation and every free of the history is an operation; what was live before it began comes first. All
    /// memory is asked of the default pool, whichever pool it was of.
    pub fn open_recorded(path: &Path, device: Option<u32>) -> Result<Self, TraceError> {
        recorded::open(path, device)
    }

    /// The file's name without folder and endings.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operations, in order; for a trace, one per line of the file.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The most bytes that were live at once, before any rounding.
    #[must_use]
    pub const fn peak_requested(&self) -> u64 {
        self.peak_requested
    }

    /// What the recorded program's own allocator held; `None` if the file does not say.
    #[must_use]
    pub const fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_ref()
    }
}

/// The file's name without folder, `.gz` and one of `endings`.
fn name_of(path: &Path, endings: &[&str]) -> String {
    let text = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = text.strip_suffix(".gz").unwrap_or(&text);
    endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name).to_owned()
}

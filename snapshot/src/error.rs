//! The errors of snapshot files, with their remedies.

use std::io;
use std::path::{Path, PathBuf};

/// An error in a snapshot file.
#[derive(Debug, thiserror::Error)]
#[error("snapshot{}: {problem}", path.as_ref().map_or_else(String::new, |path| format!(" '{}'", path.display())))]
pub struct SnapshotError {
    /// The file; `None` if the input has no name.
    pub path: Option<PathBuf>,
    /// The problem.
    pub problem: SnapshotProblem,
}

impl SnapshotError {
    /// Adds the path of the file.
    pub(crate) fn of(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }
}

impl From<SnapshotProblem> for SnapshotError {
    fn from(problem: SnapshotProblem) -> Self {
        Self { path: None, problem }
    }
}

/// The problem with a snapshot file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotProblem {
    /// It cannot be read.
    #[error("cannot be read: {0}; name a file that holds a snapshot")]
    Unreadable(#[from] io::Error),
    /// It is empty.
    #[error("the file is empty; write the snapshot again")]
    Empty,
    /// It is compressed and truncated.
    #[error("the packed data end too early; the file is cut short, copy it again")]
    PackedCutShort,
    /// It is larger than the limit.
    #[error("it is larger than {limit} bytes; record a shorter history")]
    TooLarge {
        /// The most bytes that are read.
        limit: u64,
    },
    /// It is compressed, and expands further than any snapshot.
    #[error("its packed data expand more than {fold} times, as no snapshot does; if you trust it, gunzip it first")]
    Expands {
        /// The most times that are read.
        fold: u64,
    },
    /// It is a zip archive, as `torch.save` writes.
    #[error(
        "this is a zip archive, as torch.save writes, and no snapshot; write one with \
         torch.cuda.memory._dump_snapshot"
    )]
    Archive,
    /// It has neither format.
    #[error(
        "it begins with '{}', which is neither JSON nor a pickle of protocol 2 or above; expected a file that \
         'cachette snapshot' or torch.cuda.memory._dump_snapshot wrote",
        start.escape_ascii()
    )]
    Foreign {
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// It is JSON, but not a snapshot, or damaged.
    #[error("{}; expected JSON that 'cachette snapshot convert' wrote", shortened(.0))]
    Json(#[from] serde_json::Error),
    /// It is JSON, and exceeds one of the limits.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// It refers to an entry that does not exist.
    #[error("{what} names {kind} {number}, but there are only {count}; write the snapshot again")]
    Dangling {
        /// What refers to it.
        what: &'static str,
        /// The kind of entry.
        kind: &'static str,
        /// Its number.
        number: u64,
        /// The number of entries.
        count: usize,
    },
    /// It is a pickle that cannot be read, or is not a snapshot.
    #[error("at byte {offset}: {problem}")]
    Pickle {
        /// The offset from the start of the pickle.
        offset: u64,
        /// The problem at that offset.
        problem: PickleProblem,
    },
}

/// The most characters of the parser's message, which quotes texts of the file.
const SHOWN: usize = 400;

/// Describes a JSON error without the end of a long text. The position stays.
fn shortened(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.char_indices().nth(SHOWN) {
        None => text,
        Some((end, _)) => format!("{}… at line {} column {}", &text[..end], error.line(), error.column()),
    }
}

/// A limit that a file exceeds; the rest of the file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Excess {
    /// There are too many of one kind.
    #[error("there {what} than {limit}; record a shorter history")]
    TooMany {
        /// The kind.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Reading it would need too much memory.
    #[error("reading it needs more than {0} bytes of memory; record a shorter history")]
    Memory(u64),
}

/// The problem at one position of a pickle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleProblem {
    /// The file ends too early.
    #[error("the pickle ends too early; the file is cut short, copy it again")]
    CutShort,
    /// Its protocol is unknown.
    #[error("it is a pickle of protocol {0}; expected one of 2 to 5")]
    Protocol(u8),
    /// It requires an import.
    #[error(
        "it asks for '{0}', and nothing in a pickle is ever run; load it where you trust it, and save it again \
         with plain dicts, lists, numbers and strings"
    )]
    Global(String),
    /// It requires a call.
    #[error(
        "it asks for something to be called, and nothing in a pickle is ever run; load it where you trust it, \
         and save it again with plain dicts, lists, numbers and strings"
    )]
    Call,
    /// An opcode is unknown.
    #[error("{0:#04x} is no operation that snapshots need; the file is damaged, or no snapshot")]
    Opcode(u8),
    /// An opcode does not match the stack.
    #[error("{0}; the file is damaged, or no snapshot")]
    Damaged(&'static str),
    /// It exceeds one of the limits.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// A value does not have the shape that a snapshot has there.
    #[error("{what} {found}; expected what torch.cuda.memory._snapshot() gives")]
    Shape {
        /// The position in the snapshot.
        what: String,
        /// The value that is there instead.
        found: String,
    },
}

//! What is wrong with a snapshot file, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a snapshot file.
#[derive(Debug, thiserror::Error)]
#[error("snapshot{}: {problem}", path.as_ref().map_or_else(String::new, |path| format!(" '{}'", path.display())))]
pub struct SnapshotError {
    /// The file; `None` if what was read has no name.
    pub path: Option<PathBuf>,
    /// What is wrong.
    pub problem: SnapshotProblem,
}

impl SnapshotError {
    /// The same of a file.
    pub(crate) fn of(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }
}

impl From<SnapshotProblem> for SnapshotError {
    fn from(problem: SnapshotProblem) -> Self {
        Self { path: None, problem }
    }
}

/// What is wrong with a snapshot file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotProblem {
    /// It cannot be read.
    #[error("cannot be read: {0}; name a file that holds a snapshot")]
    Unreadable(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty; write the snapshot again")]
    Empty,
    /// It is packed, and cut short.
    #[error("the packed data end too early; the file is cut short, copy it again")]
    PackedCutShort,
    /// It is larger than the limit.
    #[error("it is larger than {limit} bytes; record a shorter history")]
    TooLarge {
        /// The most bytes that are read.
        limit: u64,
    },
    /// It is an archive, as `torch.save` writes.
    #[error(
        "this is a zip archive, as torch.save writes, and no snapshot; write one with \
         torch.cuda.memory._dump_snapshot"
    )]
    Archive,
    /// It is of neither format.
    #[error(
        "it begins with '{}', which is neither JSON nor a pickle of protocol 2 or above; expected a file that \
         'cachette snapshot' or torch.cuda.memory._dump_snapshot wrote",
        start.escape_ascii()
    )]
    Foreign {
        /// How it begins.
        start: Vec<u8>,
    },
    /// It is JSON, and no snapshot or a damaged one.
    #[error("{0}; expected JSON that 'cachette snapshot convert' wrote")]
    Json(#[from] serde_json::Error),
    /// It is JSON, and beyond one of the limits.
    #[error("at line {line} column {column}: {excess}")]
    JsonExcess {
        /// The line, counted from 1.
        line: usize,
        /// The byte in that line, counted from 1.
        column: usize,
        /// The limit.
        excess: Excess,
    },
    /// Something in it names what is not there.
    #[error("{what} names {kind} {number}, but there are only {count}; write the snapshot again")]
    Dangling {
        /// What names it.
        what: &'static str,
        /// What is named.
        kind: &'static str,
        /// Its number.
        number: u64,
        /// How many there are.
        count: usize,
    },
    /// It is a pickle that cannot be read, or no snapshot.
    #[error("at byte {offset}: {problem}")]
    Pickle {
        /// Where, from the start of the pickle.
        offset: u64,
        /// What is wrong there.
        problem: PickleProblem,
    },
}

/// A limit that a file is beyond; what is beyond is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Excess {
    /// There is more of something than is allowed.
    #[error("there {what} than {limit}; record a shorter history")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The most that is allowed.
        limit: u64,
    },
    /// Reading it would need too much memory.
    #[error("reading it needs more than {0} bytes of memory; record a shorter history")]
    Memory(u64),
}

/// What is wrong at a place in a pickle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleProblem {
    /// The file ends too early.
    #[error("the pickle ends too early; the file is cut short, copy it again")]
    CutShort,
    /// It is of a protocol that is not known.
    #[error("it is a pickle of protocol {0}; expected one of 2 to 5")]
    Protocol(u8),
    /// It wants something to be imported.
    #[error(
        "it asks for '{0}', and nothing in a pickle is ever run; load it where you trust it, and save it again \
         with plain dicts, lists, numbers and strings"
    )]
    Global(String),
    /// It wants something to be run.
    #[error(
        "it asks for something to be called, and nothing in a pickle is ever run; load it where you trust it, \
         and save it again with plain dicts, lists, numbers and strings"
    )]
    Call,
    /// An operation is not known.
    #[error("{0:#04x} is no operation that snapshots need; the file is damaged, or no snapshot")]
    Opcode(u8),
    /// An operation does not fit what is there.
    #[error("{0}; the file is damaged, or no snapshot")]
    Damaged(&'static str),
    /// It is beyond one of the limits.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// What stands there is not what a snapshot has there.
    #[error("{what} {found}; expected what torch.cuda.memory._snapshot() gives")]
    Shape {
        /// Where in the snapshot.
        what: String,
        /// What is there instead.
        found: String,
    },
}

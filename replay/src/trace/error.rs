//! Errors of traces, with their position.

use std::io;
use std::path::PathBuf;

use cachette_snapshot::SnapshotProblem;

/// Errors of traces, with their position.
#[derive(Debug, thiserror::Error)]
#[error("trace '{}'{}: {problem}", path.display(), At(*line))]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1; `None` if it is the file as a whole.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: TraceProblem,
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceProblem {
    /// The file cannot be read.
    #[error("cannot be read: {0}; name a file in the form .trace or .trace.gz")]
    Unreadable(io::Error),
    /// The packed file is cut short.
    #[error("the packed data end too early; the file is cut short, copy it again")]
    PackedCutShort,
    /// The last line is cut short.
    #[error("the last line has no end; the file is cut short, copy it again")]
    LineCutShort,
    /// A line has no end where the longest must have one.
    #[error("the line is longer than {0} bytes; expected 'a ID SIZE STREAM' or 'f ID'")]
    LineTooLong(usize),
    /// There is nothing in it.
    #[error("there is no operation in it; expected lines 'a ID SIZE STREAM' or 'f ID'")]
    Empty,
    /// The line is of neither form.
    #[error("expected 'a ID SIZE STREAM' or 'f ID', found '{0}'")]
    Form(String),
    /// A field is not a number.
    #[error("{field} is '{text}'; expected a whole number from 0 up")]
    Number {
        /// The field's name in the form of the line.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// Memory is allocated under a name that is taken.
    #[error("{0} is allocated already; expected an ID that is new or was freed")]
    AlreadyLive(u64),
    /// Memory is freed that is not allocated.
    #[error("{0} is freed but not allocated; expected the ID of an 'a' line above that was not freed since")]
    NotLive(u64),
    /// More is live at once than can be counted.
    #[error("more is live here than any device has; expected less than 2^64 bytes")]
    TooMuch,
    /// The file is a snapshot that cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotProblem),
    /// The snapshot has no history.
    #[error(
        "the snapshot has no history to replay; record one, with torch.cuda.memory._record_memory_history() \
         before the run"
    )]
    NoHistory,
    /// Another device has a history.
    #[error("device {device} has no history in the snapshot; these have: {known}")]
    NoSuchDevice {
        /// The device asked for.
        device: u32,
        /// Those that have one.
        known: String,
    },
    /// Several devices have a history, and none was chosen.
    #[error("the snapshot has the histories of devices {0}; choose one with --recorded-device")]
    SeveralDevices(String),
}

/// Writes `, line N`, or nothing.
struct At(Option<u64>);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(line) => write!(f, ", line {line}"),
            None => Ok(()),
        }
    }
}

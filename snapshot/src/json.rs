//! Snapshots as JSON.
//!
//! One object: first `format` and `version`, then the tables that the rest refers to by index, then the rest. Lists
//! with many entries have one row of numbers per entry, without trailing zeros. Unknown keys are skipped.

mod read;
mod setting;
mod write;

use std::io::{self, BufReader, BufWriter, Read, Write};

use crate::budget::Budget;
use crate::file::{Bounded, unreadable};
use crate::{Limits, Snapshot, SnapshotError, SnapshotProblem};

/// The value of `format`.
const FORMAT: &str = "cachette-snapshot";
/// The version that is written.
const VERSION: u64 = 1;
/// The most bytes of memory that a byte of JSON takes: frames of a few letters, which are stored twice, need most.
const MEMORY_BY_BYTE: u64 = 40;

impl Snapshot {
    /// Writes the snapshot as JSON.
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        serde_json::to_writer(&mut out, &write::Output::of(self))?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Reads the output of [`write_json`](Self::write_json).
    pub fn read_json(input: impl Read) -> Result<Self, SnapshotError> {
        Self::read_json_within(input, &Limits::DEFAULT)
    }

    /// Does the same as [`read_json`](Self::read_json), with other limits.
    pub fn read_json_within(input: impl Read, limits: &Limits) -> Result<Self, SnapshotError> {
        // Nothing in JSON is shared, so the length of the file bounds the memory.
        let bytes = limits.bytes.min(limits.memory / MEMORY_BY_BYTE);
        let budget = Budget::new(Limits { bytes, ..*limits });
        let input = BufReader::new(Bounded::new(input, &budget));
        let read: read::Input = serde_json::from_reader(input).map_err(problem)?;
        Ok(read.into_snapshot(&budget)?)
    }
}

fn problem(error: serde_json::Error) -> SnapshotProblem {
    if error.is_io() { unreadable(error.into()) } else { SnapshotProblem::Json(error) }
}

//! Snapshots as JSON.
//!
//! One object: first `format` and `version`, then the tables that the rest refers to by index, then the rest. Lists
//! with many entries have one row of numbers per entry, without trailing zeros. Unknown keys are skipped.

mod entries;
mod read;
mod seeds;
mod setting;
mod write;

use std::io::{self, BufReader, BufWriter, Read, Write};

use serde::de::DeserializeSeed;

use self::read::FileSeed;
pub(crate) use self::seeds::ChargedBudget;
use crate::budget::Budget;
use crate::file::{Bounded, unreadable};
use crate::{Limits, Snapshot, SnapshotError, SnapshotProblem};

/// The value of `format`.
const FORMAT: &str = "cachette-snapshot";
/// The version that is written.
const VERSION: u64 = 1;

impl Snapshot {
    /// Writes the snapshot as JSON.
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        serde_json::to_writer(&mut out, &write::File::of(self))?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Reads the output of [`write_json`](Self::write_json).
    pub fn read_json(input: impl Read) -> Result<Self, SnapshotError> {
        Self::read_json_within(input, &Limits::DEFAULT)
    }

    /// Does the same as [`read_json`](Self::read_json), with other limits.
    pub fn read_json_within(input: impl Read, limits: &Limits) -> Result<Self, SnapshotError> {
        let purse = ChargedBudget::new(Budget::new(*limits));
        let input = BufReader::new(Bounded::new(input, &purse.budget));
        let mut input = serde_json::Deserializer::from_reader(input);
        let read = FileSeed(&purse).deserialize(&mut input).and_then(|file| input.end().map(|()| file));
        let file = read.map_err(|error| problem(error, &purse))?;
        Ok(file.into_snapshot()?)
    }
}

fn problem(error: serde_json::Error, purse: &ChargedBudget) -> SnapshotProblem {
    if let Some(excess) = purse.excess() {
        return SnapshotProblem::JsonExcess { line: error.line(), column: error.column(), excess };
    }
    if error.is_io() { unreadable(error.into()) } else { SnapshotProblem::Json(error) }
}

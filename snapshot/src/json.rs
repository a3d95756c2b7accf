//! Snapshots as JSON.
//!
//! One object with `format` and `version` first, then the tables that the rest names by place, then the rest. Whatever
//! there are many of is a row of numbers, without the zeros at its end. Keys that are not known are passed over.

mod read;
mod rows;
mod setting;
mod write;

use std::io::{self, BufReader, BufWriter, Read, Write};

use crate::file::{Bounded, unreadable};
use crate::{Limits, Snapshot, SnapshotError, SnapshotProblem};

/// What says that a file is one of ours.
const FORMAT: &str = "cachette-snapshot";
/// The shape that is written.
const VERSION: u64 = 1;

impl Snapshot {
    /// Writes it as JSON.
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        serde_json::to_writer(&mut out, &write::File::of(self))?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Reads what [`write_json`](Self::write_json) wrote.
    pub fn read_json(input: impl Read) -> Result<Self, SnapshotError> {
        let input = BufReader::new(Bounded::new(input, &Limits::DEFAULT));
        let file: read::File = serde_json::from_reader(input).map_err(problem)?;
        Ok(file.into_snapshot()?)
    }
}

fn problem(error: serde_json::Error) -> SnapshotProblem {
    if error.is_io() {
        unreadable(error.into())
    } else {
        SnapshotProblem::Json(error)
    }
}

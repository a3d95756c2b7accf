//! Snapshots as the pickles that PyTorch writes and its viewers read.
//!
//! | module | responsibility |
//! |---|---|
//! | `opcode` | the operations of a pickle that snapshots need |
//! | `writer` | numbers, texts and containers as operations |
//! | `write` | a snapshot in the shape of the reference |
//! | `machine`, `tree` | runs the opcodes of plain data, and no others |
//! | `shape` | converts plain data to a snapshot |
//!
//! The output uses no opcode above protocol 2, and at most a thousand entries at once, since the viewers have limited
//! readers.

mod key;
mod machine;
mod opcode;
mod shape;
mod tree;
mod write;
mod writer;

use std::io::{self, BufWriter, Read, Write};

use crate::budget::Budget;
use crate::file::{Bounded, unreadable};
use crate::{Limits, Snapshot, SnapshotError, SnapshotProblem};

impl Snapshot {
    /// Writes the snapshot as a pickle.
    ///
    /// Every distinct stack is written once. Device numbers must be below 1024, since there is one list for each device
    /// up to the last.
    pub fn write_pickle(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        write::write(self, &mut out)?;
        out.flush()
    }

    /// Reads a pickle of protocol 2 to 5 that PyTorch or [`write_pickle`](Self::write_pickle) wrote.
    ///
    /// Nothing in it is run: a pickle that needs more than plain data is an error. Unknown keys are skipped.
    pub fn read_pickle(input: impl Read) -> Result<Self, SnapshotError> {
        Self::read_pickle_within(input, &Limits::DEFAULT)
    }

    /// Does the same as [`read_pickle`](Self::read_pickle), with other limits.
    pub fn read_pickle_within(input: impl Read, limits: &Limits) -> Result<Self, SnapshotError> {
        let (budget, mut bytes) = (Budget::new(*limits), Vec::new());
        Bounded::new(input, &budget).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.is_empty() {
            return Err(SnapshotProblem::Empty.into());
        }
        let failed =
            |failure: tree::Failure| SnapshotProblem::Pickle { offset: failure.offset, problem: failure.problem };
        let tree = machine::run(&bytes, &budget).map_err(failed)?;
        Ok(shape::snapshot(&tree).map_err(failed)?)
    }
}

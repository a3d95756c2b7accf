//! Snapshots as the pickles that PyTorch writes and its viewers read.
//!
//! | module | what it does |
//! |---|---|
//! | `opcode` | the operations of a pickle that snapshots need |
//! | `writer` | numbers, texts and containers as operations |
//! | `write` | a snapshot in the shape of the reference |
//! | `machine`, `tree` | runs the operations of plain data, and of nothing else |
//! | `shape` | from plain data to a snapshot |
//!
//! What is written uses no operation above protocol 2, and no more than a thousand entries at once: the viewers have
//! small readers of their own.

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
    /// Writes it as a pickle.
    ///
    /// Every distinct stack is written once. The numbers of devices must be below 1024, as there is one list for each
    /// device up to the last.
    pub fn write_pickle(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        write::write(self, &mut out)?;
        out.flush()
    }

    /// Reads a pickle of protocol 2 to 5 that PyTorch or [`write_pickle`](Self::write_pickle) wrote.
    ///
    /// Nothing in it is run: a pickle that asks for more than plain data is an error. Keys that are not known are
    /// passed over.
    pub fn read_pickle(input: impl Read) -> Result<Self, SnapshotError> {
        Self::read_pickle_within(input, &Limits::DEFAULT)
    }

    /// [`read_pickle`](Self::read_pickle) with limits of one's own.
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

//! Mappings ready for use.

use cachette_hal::{Access, Device, ErrorKind, Result, Sharing};

use super::{Backing, MIB, Mapping, Reservation, Subject};
use crate::failure::{Stop, Verdict};

impl Subject {
    /// The size of chunk that cases use: a multiple of the recommended granularity, and never tiny.
    pub(crate) fn chunk(&self) -> Result<u64> {
        let recommended = self.device.virtual_memory()?.granularity().recommended;
        Ok((2 * MIB).next_multiple_of(recommended))
    }

    pub(crate) fn chunk_backing(&self) -> Result<Backing> {
        self.backing(self.chunk()?, Sharing::Private)
    }

    /// Backing of one chunk that can be exported in this way.
    ///
    /// Skips the case if the device lacks the kind of sharing, or if this process may not use the fabric.
    pub(crate) fn shared_backing(&self, sharing: Sharing) -> Verdict<Backing> {
        let memory = self.device.virtual_memory()?;
        let lacked = |reason| Stop::skipped(format!("no {sharing}: {reason}"));
        memory.shares(sharing).map_err(lacked)?;
        self.backing(self.chunk()?, sharing).map_err(|error| match error.kind() {
            ErrorKind::NoFabric => Stop::skipped(error.to_string()),
            _ => error.into(),
        })
    }

    pub(crate) fn chunk_reservation(&self, chunks: u64) -> Result<Reservation> {
        self.reservation(chunks * self.chunk()?)
    }

    /// The right to read and write for the device under test.
    pub(crate) fn read_write(&self) -> [Access; 1] {
        [Access::ReadWrite(self.ordinal)]
    }

    /// Maps `backing` and gives the device under test read and write access.
    pub(crate) fn map<'r>(&self, reservation: &'r Reservation, offset: u64, backing: &Backing) -> Result<Mapping<'r>> {
        let mapping = reservation.map(offset, backing)?;
        mapping.set_access(&self.read_write())?;
        Ok(mapping)
    }
}

//! What a program can do with the contents that a sleeping pool keeps: read them, and move them to a file.

use std::io;
use std::path::Path;

use cachette_hal::Device;

use crate::allocator::allocator_state::AllocatorState;
use crate::error::Error;
use crate::pool::pool_state::PoolState;
use crate::pool::{Pool, PoolProblem};
use crate::sleep::OffloadState;

impl<D: Device> Pool<D> {
    /// Copies contents that the sleeping pool keeps, from an address of its memory on. Returns whether all of them are
    /// kept; otherwise `into` holds anything.
    pub fn read_contents(&self, address: u64, into: &mut [u8]) -> Result<bool, Error> {
        let inner = self.allocator().inner();
        inner.with_contents(&self.state, |offload| {
            if !offload.keeps(address, into.len()) {
                return Ok(false);
            }
            offload.read_back().map_err(|error| self.file_failed(&error))?;
            offload.read(address, into);
            Ok(true)
        })
    }

    /// Moves the contents that the sleeping pool keeps to a file in `folder`. Returns the bytes of host memory that were
    /// freed.
    ///
    /// The wake reads them back and compares a checksum. The file has no name, so it ends with the pool or the process.
    /// After a failure, such as a full disk, the rest of the contents stays in host memory.
    pub fn spill_contents(&self, folder: &Path) -> Result<u64, Error> {
        let inner = self.allocator().inner();
        inner.with_contents(&self.state, |offload| offload.spill(folder, &|error| self.file_failed(&error)))
    }

    fn file_failed(&self, error: &io::Error) -> Error {
        PoolProblem::File { kind: error.kind() }.of(self.id())
    }
}

impl<D: Device> AllocatorState<D> {
    /// Calls `act` with the contents of a pool that sleeps, while no other thread wakes it.
    fn with_contents<T>(
        &self,
        state: &PoolState,
        act: impl FnOnce(&mut OffloadState<D>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _turn = state.turn()?;
        let offload = self.offload(state).filter(|_| state.is_asleep());
        let offload = offload.ok_or_else(|| PoolProblem::Awake.of(state.id))?;
        act(&mut offload.lock())
    }
}

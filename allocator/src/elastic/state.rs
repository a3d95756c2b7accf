//! The state of an elastic heap besides its blocks: address ranges and pending unmaps.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cachette_hal::{self as hal, Device, DevicePtr};

use crate::blocks::BlockId;
use crate::elastic::map::Leftover;
use crate::elastic::moves::Moves;
use crate::fence::Fence;
use crate::sync::Mutex;

/// The state of an elastic heap besides its blocks.
#[derive(Debug)]
pub(crate) struct ElasticState<D: Device> {
    /// The reserved address ranges.
    pub(crate) ranges: Mutex<Vec<(DevicePtr, u64)>>,
    /// Addresses whose chunk has moved or is being released, still mapped.
    pub(crate) pending_unmaps: Mutex<Vec<PendingUnmap<D>>>,
    pub(crate) moves: Arc<Moves>,
    /// Bytes of chunks that have no memory because their pool sleeps; changed under the heap's lock.
    pub(crate) slept: AtomicU64,
}

impl<D: Device> Default for ElasticState<D> {
    fn default() -> Self {
        Self {
            ranges: Mutex::default(),
            pending_unmaps: Mutex::default(),
            moves: Arc::default(),
            slept: AtomicU64::new(0),
        }
    }
}

impl<D: Device> ElasticState<D> {}

/// Addresses whose chunk has moved or is being released, still mapped.
#[derive(Debug)]
pub(crate) struct PendingUnmap<D: Device> {
    pub(crate) block: BlockId,
    pub(crate) left: Vec<Leftover>,
    /// The fences that must pass before the addresses are unmapped.
    pub(crate) fences: Vec<Arc<Fence<D>>>,
}

impl<D: Device> PendingUnmap<D> {
    /// Returns whether every use of the addresses has ended.
    pub(crate) fn is_ready(&self) -> hal::Result<bool> {
        for fence in &self.fences {
            if !fence.poll()?.is_done() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

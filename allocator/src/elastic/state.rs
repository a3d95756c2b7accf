//! What an elastic heap has besides blocks: ranges of addresses, and mappings that wait to be unmapped.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette_hal::{self as hal, Device, DevicePtr};

use crate::blocks::BlockId;
use crate::elastic::fill::Leftover;
use crate::elastic::moves::Moves;
use crate::fence::Fence;

/// What an elastic heap has besides blocks.
#[derive(Debug)]
pub(crate) struct ElasticState<D: Device> {
    /// The ranges of addresses, as they were reserved.
    pub(crate) ranges: Mutex<Vec<(DevicePtr, u64)>>,
    /// Addresses that lost their memory and are not unmapped yet.
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

impl<D: Device> ElasticState<D> {
    pub(crate) fn pending_unmaps(&self) -> MutexGuard<'_, Vec<PendingUnmap<D>>> {
        // Entries are pushed and taken whole, so a panic leaves the list sound.
        self.pending_unmaps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ranges(&self) -> MutexGuard<'_, Vec<(DevicePtr, u64)>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses that lost their memory and are not unmapped yet.
#[derive(Debug)]
pub(crate) struct PendingUnmap<D: Device> {
    pub(crate) block: BlockId,
    pub(crate) left: Vec<Leftover>,
    /// What must have passed before they may be unmapped.
    pub(crate) fences: Vec<Arc<Fence<D>>>,
}

impl<D: Device> PendingUnmap<D> {
    /// Whether every use of the addresses has ended.
    pub(crate) fn is_ready(&self) -> hal::Result<bool> {
        for fence in &self.fences {
            if !fence.poll()?.is_done() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

//! The state of an elastic heap besides its blocks: address ranges and pending unmaps.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cachette_hal::{Device, DevicePtr};

use crate::blocks::BlockId;
use crate::elastic::map::Leftover;
use crate::fence::Fence;
use crate::sync::{Mutex, RwLock};

/// The state of an elastic heap besides its blocks.
#[derive(Debug)]
pub(crate) struct ElasticState<D: Device> {
    /// The reserved address ranges.
    pub(crate) ranges: Mutex<Vec<(DevicePtr, u64)>>,
    /// The closed ranges without memory that the driver refused to release.
    pub(crate) unused_ranges: Mutex<Vec<(DevicePtr, u64)>>,
    pub(crate) pending_unmaps: Mutex<Vec<PendingUnmap<D>>>,
    /// Locked for reading by every thread that moves or releases chunks. During that time neither the heap's blocks nor
    /// its address lists contain these chunks. A pool locks it for writing before it sleeps, to wait for them.
    pub(crate) moves: RwLock<()>,
    /// Bytes of chunks that have no memory because their pool sleeps; changed under the heap's lock.
    pub(crate) slept: AtomicU64,
}

impl<D: Device> Default for ElasticState<D> {
    fn default() -> Self {
        Self {
            ranges: Mutex::default(),
            unused_ranges: Mutex::default(),
            pending_unmaps: Mutex::default(),
            moves: RwLock::default(),
            slept: AtomicU64::new(0),
        }
    }
}

/// Addresses whose chunk has moved or is being released, still mapped.
#[derive(Debug)]
pub(crate) struct PendingUnmap<D: Device> {
    pub(crate) block: BlockId,
    pub(crate) left: Vec<Leftover>,
    /// The fences that must pass before the addresses are unmapped.
    pub(crate) fences: Vec<Arc<Fence<D>>>,
}

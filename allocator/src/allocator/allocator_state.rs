//! The state of an allocator.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cachette_hal::Device;

use crate::device_state::DeviceState;
use crate::heap::Heaps;
use crate::ipc::import::IpcState;
use crate::pinned::cache::PinnedCache;
use crate::pool::pool_state::Launches;
use crate::pool::route::Routes;
use crate::pool::{PoolId, Pools};
use crate::reclaim::ReclaimState;
use crate::sleep::offload::OffloadState;
use crate::sleep::staging::StagingStore;
use crate::sync::{Mutex, StreamTable};

/// The state of an allocator. [`Allocator`](crate::Allocator) is a handle to it.
pub(crate) struct AllocatorState<D: Device> {
    pub(crate) shared: Arc<DeviceState<D>>,
    /// Unique among all allocators of the process; never zero.
    pub(crate) identity: u64,
    /// The heaps of all pools.
    pub(crate) heaps: Heaps<D>,
    /// Held while a heap is created or gets a pool, and while settings of heaps change. So all heaps have the newest.
    pub(crate) config_turn: Mutex<()>,
    /// The heap of every stream in the default pool.
    pub(crate) streams: StreamTable,
    /// The heap of every stream with growable allocations outside pools.
    pub(crate) growables: StreamTable,
    pub(crate) pools: Pools,
    pub(crate) routes: Arc<Routes>,
    pub(crate) pinned: Arc<PinnedCache<D>>,
    /// The streams in which graphs were launched, by the pool of their memory.
    pub(crate) launches: Mutex<HashMap<PoolId, Launches<D>>>,
    pub(crate) offloads: Mutex<HashMap<PoolId, Arc<Mutex<OffloadState<D>>>>>,
    /// Host memory for the contents of sleeping pools.
    pub(crate) store: StagingStore<D>,
    /// The other processes on the device.
    pub(crate) reclaim: ReclaimState,
    /// Memory shared with other processes, in both directions.
    pub(crate) ipc: IpcState<D>,
}

impl<D: Device> fmt::Debug for AllocatorState<D> {
    /// Takes no lock, since a thread of a parent process may hold it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatorState").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<D: Device> Drop for AllocatorState<D> {
    fn drop(&mut self) {
        self.ipc.exporter.close();
        self.ipc.close_imports(&self.shared);
        for heap in self.heaps.all() {
            heap.close();
        }
        self.pinned.close();
    }
}

//! The allocator: the entry point of the crate.

pub(crate) mod allocator_state;
mod empty;
mod exact;
mod find;
mod outside;
mod raw;
mod settings;
mod stats;
mod streams;

pub use stats::ElasticSegment;

use std::convert::identity;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use cachette_hal::{AnyDevice, Device, DeviceInfo, ErrorKind, StreamRef};

use crate::allocation::{Allocation, Answer};
use crate::allocator::allocator_state::AllocatorState;
use crate::config::Config;
use crate::device_state::DeviceState;
use crate::error::Error;
use crate::heap::{Allocated, FastGuard, Heap, Heaps, Request};
use crate::human::Bytes;
use crate::ipc::import::IpcState;
use crate::label::Label;
use crate::pinned::cache::PinnedCache;
use crate::pool::Pools;
use crate::reclaim::{Reclaim, ReclaimState};
use crate::retry::FoundBlock;
use crate::size::{TOO_LARGE, UNIT};
use crate::sleep::StagingStore;
use crate::stream::Stream;
use crate::sync::{Mutex, StreamTable, thread};
use crate::uncached::Uncached;

/// A caching allocator for one device.
///
/// It is a handle: clones refer to the same allocator. Every method can be called from any thread.
///
/// ```
/// use cachette::{Allocator, Backends};
///
/// let allocator = Allocator::new(Backends::open("host")?);
/// let stream = allocator.create_stream()?;
/// let memory = allocator.allocate(1 << 20, &stream)?;
/// assert_eq!(memory.requested(), 1 << 20);
/// drop(memory); // at once free for the next request on `stream`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Allocator<D: Device = AnyDevice> {
    inner: Arc<AllocatorState<D>>,
}

impl<D: Device> Clone for Allocator<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: Device> Allocator<D> {
    /// Creates an allocator for `device` with the default configuration.
    pub fn new(device: D) -> Self
    where
        D: 'static,
    {
        Self::with_config(device, &Config::default())
    }

    /// Creates an allocator for `device` with the configuration `config`.
    pub fn with_config(device: D, config: &Config) -> Self
    where
        D: 'static,
    {
        /// Relaxed: only the numbers must differ.
        static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1);
        let shared = Arc::new(DeviceState::new(device, config));
        let routes = Arc::default();
        let inner = Arc::new_cyclic(|own: &Weak<AllocatorState<D>>| AllocatorState {
            pinned: PinnedCache::new(&shared, &routes),
            shared,
            identity: NEXT_IDENTITY.fetch_add(1, Relaxed),
            heaps: Heaps::default(),
            config_turn: Mutex::default(),
            streams: StreamTable::default(),
            growables: StreamTable::default(),
            pools: Pools::default(),
            routes,
            launches: Mutex::default(),
            offloads: Mutex::default(),
            store: StagingStore::default(),
            reclaim: ReclaimState::new(own.clone()),
            ipc: IpcState::default(),
        });
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &AllocatorState<D> {
        &self.inner
    }

    fn shared(&self) -> &Arc<DeviceState<D>> {
        &self.inner.shared
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.inner.shared.device
    }

    /// Facts about the device.
    #[must_use]
    pub fn device_info(&self) -> &DeviceInfo {
        self.device().info()
    }

    /// Allocates `bytes` bytes for work in `stream`.
    #[inline]
    pub fn allocate(&self, bytes: u64, stream: &Stream<D>) -> Result<Allocation<D>, Error> {
        let heap = &stream.heap;
        if !Arc::ptr_eq(&heap.shared, &self.inner.shared) {
            return foreign_stream();
        }
        if thread::entered() > 0 {
            self.allocate_inside(bytes, stream)
        } else {
            self.allocate_fast(bytes, heap, Label::OWNED, identity)
        }
    }

    /// Allocates `bytes` bytes that begin at a multiple of `align`, a power of two.
    ///
    /// Every allocation is aligned to 512 bytes. For a larger alignment the block has up to `align` bytes more.
    pub fn allocate_aligned(&self, bytes: u64, align: u64, stream: &Stream<D>) -> Result<Allocation<D>, Error> {
        if !align.is_power_of_two() {
            return Err(Error::InvalidAlignment { align });
        }
        let extra = if bytes == 0 { 0 } else { align.saturating_sub(UNIT) };
        let memory = self.allocate(bytes.saturating_add(extra), stream)?;
        Ok(memory.aligned(align, bytes))
    }

    /// Allocates from a heap of this allocator, for its stream: the fast path. Errors are converted.
    #[inline(always)]
    pub(crate) fn allocate_fast<A: Answer<D>, E>(
        &self,
        bytes: u64,
        heap: &Arc<Heap<D>>,
        label: Label,
        convert: impl FnOnce(Error) -> E,
    ) -> Result<A, E> {
        let request = Request { requested: bytes, label };
        match heap.allocate_fast(request) {
            Ok(allocated) => Ok(A::of_block(heap, &allocated, bytes)),
            Err(held) => self.allocate_search(held, request, heap, convert),
        }
    }

    /// The slow path. It is a separate function, so that the fast path saves no registers.
    #[inline(never)]
    fn allocate_search<A: Answer<D>, E>(
        &self,
        held: Option<FastGuard<'_, D>>,
        request: Request,
        heap: &Arc<Heap<D>>,
        convert: impl FnOnce(Error) -> E,
    ) -> Result<A, E> {
        if request.requested == 0 || request.requested >= TOO_LARGE {
            drop(held);
            return self.allocate_uncached(request.requested, heap.stream_state.handle).map_err(convert);
        }
        match heap.allocate_search(held, request) {
            Some(allocated) if !allocated.guarded => Ok(A::of_block(heap, &allocated, request.requested)),
            allocated => self.allocate_miss(allocated, request, heap).map_err(convert),
        }
    }

    /// Serves a request for which no block fits, or whose block has guards.
    #[cold]
    #[inline(never)]
    fn allocate_miss<A: Answer<D>>(
        &self,
        allocated: Option<Allocated>,
        request: Request,
        heap: &Arc<Heap<D>>,
    ) -> Result<A, Error> {
        let bytes = request.requested;
        let bypasses_cache = allocated.is_none() && !self.shared().settings.caches.load(Relaxed);
        // The memory of graphs does not bypass the cache: it must outlast its owners.
        if bypasses_cache && !self.inner.serves_graphs(heap) {
            return self.allocate_uncached(bytes, heap.stream_state.handle);
        }
        let FoundBlock { heap, allocated } = self.inner.find_block_slow(heap, request, allocated)?;
        Ok(A::of_block(&heap, &allocated, bytes))
    }

    /// Serves requests of no bytes, of more than any device has, and those that bypass the cache.
    #[cold]
    pub(crate) fn allocate_uncached<A: Answer<D>>(&self, bytes: u64, stream: StreamRef) -> Result<A, Error> {
        if bytes == 0 {
            return Ok(A::empty(stream));
        }
        if bytes >= TOO_LARGE {
            return Err(Error::TooLarge { bytes });
        }
        self.shared().origin.check()?;
        let allocate = || Uncached::allocate(self.shared(), bytes);
        // The cache that was switched off may have idle memory, and so may frees that the driver has failed before.
        let waits = !self.shared().settings.never_block.load(Relaxed);
        let released = || waits && self.empty_cache().is_ok_and(|bytes| bytes > 0);
        let made = match allocate() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory && released() => allocate(),
            made => made,
        };
        let neighbours = Reclaim::new(&self.inner, bytes, None);
        let made = match made {
            Err(error) if error.kind() == ErrorKind::OutOfMemory && waits && neighbours.last(true) => allocate(),
            made => made,
        };
        Ok(A::of_device(made?, bytes, stream))
    }
}

/// A separate function, so that the fast path shares no instruction with this result.
#[cold]
#[inline(never)]
const fn foreign_stream<D: Device>() -> Result<Allocation<D>, Error> {
    Err(Error::ForeignStream)
}

impl<D: Device> Drop for Allocator<D> {
    fn drop(&mut self) {
        self.shared().origin.keep(&self.inner);
    }
}

impl<D: Device> fmt::Debug for Allocator<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.device_info();
        let device = format_args!("{} {}, {}", info.vendor, info.ordinal, info.name);
        if self.inner.shared.origin.is_inherited() {
            // A thread of the parent process may have held the lock of the figures.
            return f.debug_struct("Allocator").field("device", &device).finish_non_exhaustive();
        }
        f.debug_struct("Allocator")
            .field("device", &device)
            .field("allocated", &format_args!("{}", Bytes(self.allocated_bytes())))
            .field("reserved", &format_args!("{}", Bytes(self.reserved_bytes())))
            .finish_non_exhaustive()
    }
}

//! The state that all heaps of one allocator share: the device, the totals and the settings.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{Access, Device, Event, Ordinal, VirtualMemory};

use crate::address_index::Index;
use crate::config::{AddressReserve, Config, ConfigBackend, scale};
use crate::elastic::ChunkTable;
use crate::elastic::chunk_map::page;
use crate::fork::ProcessGuard;
use crate::heap_policy::HeapPolicy;
use crate::in_flight::{InFlight, Reservation};
use crate::observe::callbacks::Callbacks;
use crate::observe::history::History;
use crate::stats::{OutsideState, PeakTracker, Stat};
use crate::sync::{Mutex, RwLock};
use crate::uncached::UncachedTable;

/// The number of address ranges of equal length; the ranges after them are half as long.
const FULL_RANGES: u32 = 8;
/// log2 of the ratio between the longest and the shortest ranges.
const SMALLEST_RANGE: u32 = 6;
/// The longest range whose units can be numbered.
const LONGEST_RANGE: u64 = 1 << 40;

pub(crate) struct DeviceState<D: Device> {
    pub(crate) device: D,
    pub(crate) origin: ProcessGuard,
    pub(crate) peaks: PeakTracker,
    pub(crate) index: Index,
    pub(crate) callbacks: Callbacks,
    pub(crate) history: History,
    pub(crate) totals: Totals,
    pub(crate) settings: Settings,
    pub(crate) outside: OutsideState,
    pub(crate) uncached: UncachedTable<D>,
    pub(crate) chunks: ChunkTable,
    pub(crate) in_flight: InFlight,
    /// Whether a route to a pool exists. Every capture that this crate or a framework announces has one. Relaxed: a
    /// thread that uses a captured stream is ordered after the begin of the capture.
    pub(crate) routed: AtomicBool,
    /// Streams whose last handle was dropped, by the number of their heap, the oldest first. Some may have handles again.
    pub(crate) dropped_streams: Mutex<VecDeque<u32>>,
    peers: RwLock<Vec<Peer>>,
    /// Unused events, the most recently used first. They are destroyed with the allocator.
    pub(crate) events: Mutex<Vec<Event>>,
}

/// A device that may access the memory.
struct Peer {
    device: Ordinal,
    /// The number of threads that grant it access to memory that was mapped before.
    granting: u32,
    /// Whether one of them has succeeded.
    complete: bool,
}

impl<D: Device> DeviceState<D> {
    pub(crate) fn new(device: D, config: &Config) -> Self {
        let total = device.info().total_memory;
        Self {
            device,
            origin: ProcessGuard::here(),
            peaks: PeakTracker::default(),
            index: Index::default(),
            callbacks: Callbacks::default(),
            history: History::default(),
            totals: Totals { max_split: HeapPolicy::of(config).max_split, ..Totals::default() },
            settings: Settings::new(config, total),
            outside: OutsideState::default(),
            uncached: UncachedTable(Mutex::default()),
            chunks: ChunkTable::default(),
            in_flight: InFlight::default(),
            routed: AtomicBool::new(false),
            dropped_streams: Mutex::default(),
            peers: RwLock::default(),
            events: Mutex::default(),
        }
    }

    /// Permits every driver call on this thread. Without it, some calls would invalidate a capture in progress.
    pub(crate) fn relax_capture(&self) -> Option<RelaxedCapture<&D>> {
        RelaxedCapture::enter(&self.device).ok()
    }

    /// Whether the configuration asks for elastic segments, and the device has them.
    pub(crate) fn is_elastic(&self) -> bool {
        let enabled = self.settings.config().expandable_segments() && !self.settings.is_driver_pool();
        enabled && self.device.virtual_memory().is_ok()
    }

    /// Counts bytes as reserved before the device allocates them. Returns `None` if the limit does not allow them, or a
    /// host that shares its memory needs them.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        let (limit, budget) = (self.settings.limit.load(Relaxed), self.host_budget());
        self.in_flight.reserve(bytes, &self.totals.reserved, limit, budget)
    }

    /// Bytes that the limit still allows, for a request that needs at most `wanted`.
    pub(crate) fn room(&self, wanted: u64) -> u64 {
        self.in_flight.room(wanted, &self.totals.reserved, self.settings.limit.load(Relaxed))
    }

    /// Returns the address bytes that an elastic segment needs for `bytes` more, and the number it should have.
    pub(crate) fn range_sizes(&self, memory: &dyn VirtualMemory, bytes: u64) -> (u64, u64) {
        let page = page(memory);
        let total = self.device.info().total_memory;
        let reserve = self.settings.config().expandable_segments_reserve();
        let full = reserve.map_or(AddressReserve::full(total), |reserve| reserve.bytes(total));
        // The first ranges hold all of the device; later ones are smaller, so that addresses last for many streams.
        let nth = self.chunks.ranges.fetch_add(1, Relaxed);
        let wish = full >> (nth / FULL_RANGES).min(SMALLEST_RANGE);
        let least = bytes.next_multiple_of(page);
        (least, wish.min(LONGEST_RANGE).next_multiple_of(page).max(least))
    }

    /// The devices that may access memory that is mapped from now on: the device, and its peers.
    pub(crate) fn access(&self) -> Vec<Access> {
        let peers = self.peers.read();
        let all = std::iter::once(self.device.info().ordinal).chain(peers.iter().map(|peer| peer.device));
        all.map(Access::ReadWrite).collect()
    }

    /// Lets a peer access memory that is mapped from now on. Returns `false` if it may already access all memory.
    /// Otherwise the caller grants access to the other memory, and calls [`end_grant`](Self::end_grant).
    pub(crate) fn begin_grant(&self, device: Ordinal) -> bool {
        let mut peers = self.peers.write();
        match peers.iter_mut().find(|peer| peer.device == device) {
            Some(peer) if peer.complete => return false,
            // Another thread grants access, too, and may fail.
            Some(peer) => peer.granting += 1,
            None => peers.push(Peer { device, granting: 1, complete: false }),
        }
        true
    }

    /// Records whether a peer has access to all memory now. After the last failure it is no peer.
    pub(crate) fn end_grant(&self, device: Ordinal, granted: bool) {
        let mut peers = self.peers.write();
        if let Some(peer) = peers.iter_mut().find(|peer| peer.device == device) {
            peer.granting -= 1;
            peer.complete |= granted;
        }
        peers.retain(|peer| peer.complete || peer.granting > 0);
    }

    /// Returns whether a capture is announced, or the reuse inside captures needs to know of all.
    pub(crate) fn knows_of_captures(&self) -> bool {
        self.routed.load(Relaxed) || self.settings.reuses_in_captures.load(Relaxed)
    }
}

impl<D: Device> fmt::Debug for DeviceState<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceState").field("device", self.device.info()).finish_non_exhaustive()
    }
}

impl<D: Device> Drop for DeviceState<D> {
    fn drop(&mut self) {
        // A destructor cannot return a failure.
        let _ = self.uncached.free_again(&self.device);
        for event in std::mem::take(&mut *self.events.lock()) {
            // SAFETY: 1. every event in the pool was created by this device and is in the pool once.
            let _ = unsafe { self.device.destroy_event(event) };
        }
    }
}

/// Counts of rare events, over all heaps. All accesses are relaxed: the counts are independent.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Bytes reserved from the device, or about to be, and those taken past the cache. The limit applies to this number.
    pub(crate) reserved: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) ooms: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) evictions: AtomicU64,
    /// How often other processes were asked for memory, and the bytes that came and went.
    pub(crate) reclaims: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) given: AtomicU64,
    pub(crate) device_allocs: AtomicU64,
    pub(crate) device_frees: AtomicU64,
    /// The number of segments obtained, which orders them.
    pub(crate) segments: AtomicU64,
    pub(crate) rejections: AtomicU64,
    /// The number of points marked in streams, which orders them.
    pub(crate) points: AtomicU64,
    pub(crate) oversize_allocations: Mutex<Stat>,
    pub(crate) oversize_segments: Mutex<Stat>,
    /// The split limit at the allocator's creation.
    pub(crate) max_split: u64,
}

impl Totals {
    /// Sets every count to zero. Current values stay.
    pub(crate) fn reset(&self) {
        // Every field has a name here, so that a new one is decided on.
        let Self {
            retries,
            ooms,
            waits,
            evictions,
            reclaims,
            reclaimed,
            given,
            device_allocs,
            device_frees,
            rejections,
            oversize_allocations,
            oversize_segments,
            reserved: _,
            segments: _,
            points: _,
            max_split: _,
        } = self;
        let reclaim = [reclaims, reclaimed, given];
        for count in
            [retries, ooms, waits, evictions, device_allocs, device_frees, rejections].into_iter().chain(reclaim)
        {
            count.store(0, Relaxed);
        }
        oversize_allocations.lock().reset_totals();
        oversize_segments.lock().reset_totals();
    }
}

/// Settings that can change. Those that are read often are relaxed atomics: a change may take effect during a request.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    config: RwLock<Config>,
    /// The limit on bytes reserved from the device; `u64::MAX` for no limit.
    pub(crate) limit: AtomicU64,
    pub(crate) never_block: AtomicBool,
    pub(crate) caches: AtomicBool,
    /// Whether memory that is freed in a capture may be reused inside it, although other streams used it.
    pub(crate) reuses_in_captures: AtomicBool,
    /// Counts requests while garbage collection is on. The age of blocks derives from it.
    pub(crate) clock: AtomicU32,
}

impl Settings {
    fn new(config: &Config, total_memory: u64) -> Self {
        let settings = Self::default();
        settings.apply(config);
        settings.limit.store(config.limit_bytes(total_memory).unwrap_or(u64::MAX), Relaxed);
        settings
    }

    /// Applies a changed configuration, except for the limit, which is read once.
    pub(crate) fn apply(&self, config: &Config) {
        self.never_block.store(config.never_block(), Relaxed);
        self.caches.store(config.caching(), Relaxed);
        self.reuses_in_captures.store(config.graph_capture_record_stream_reuse(), Relaxed);
        *self.config.write() = config.clone();
    }

    pub(crate) fn config(&self) -> Config {
        self.config.read().clone()
    }

    pub(crate) fn is_driver_pool(&self) -> bool {
        self.config.read().backend() == ConfigBackend::CudaMallocAsync
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Relaxed)).filter(|limit| *limit != u64::MAX)
    }
}

/// `fraction` of `total`; the whole total means no limit.
pub(crate) fn fraction_of(fraction: f64, total: u64) -> u64 {
    if fraction < 1.0 { scale(total, fraction).unwrap_or(0) } else { u64::MAX }
}

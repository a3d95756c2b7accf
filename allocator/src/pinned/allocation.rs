//! The owner of a pinned allocation.

use std::fmt;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use cachette_hal::{AnyDevice, Device, DevicePtr};

use super::blocks::{PinnedBlock, rounded};
use super::cache::PinnedCache;
use crate::blocks::BlockId;
use crate::error::Error;
use crate::stream::Stream;

/// Pinned host memory that returns to its allocator when dropped.
///
/// It belongs to no stream. Before the drop, the caller must wait for every stream with queued work that uses it, or
/// [record](Self::record_stream) that stream.
pub struct PinnedAllocation<D: Device = AnyDevice> {
    /// Alive while any block has an owner; dangling if there is no block.
    cache: NonNull<PinnedCache<D>>,
    ptr: NonNull<u8>,
    requested: u64,
    id: BlockId,
}

// SAFETY: the cache behind the pointer is `Sync`; the memory has this one owner, and is bound to no thread.
unsafe impl<D: Device> Send for PinnedAllocation<D> {}
// SAFETY: shared references read plain fields, and call the cache, which takes its locks. The caller promises what
// reads of the memory need.
unsafe impl<D: Device> Sync for PinnedAllocation<D> {}

impl<D: Device> PinnedAllocation<D> {
    pub(super) const fn empty() -> Self {
        Self { cache: NonNull::dangling(), ptr: NonNull::dangling(), requested: 0, id: BlockId::NONE }
    }

    #[inline(always)]
    pub(super) fn new(cache: &PinnedCache<D>, (id, ptr): PinnedBlock, requested: u64) -> Self {
        Self { cache: NonNull::from(cache), ptr, requested, id }
    }

    /// The host address of the first byte; dangling for an allocation of no bytes.
    #[must_use]
    pub const fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// The device address of the first byte; `None` for an allocation of no bytes.
    pub fn device_address(&self) -> Result<Option<DevicePtr>, Error> {
        let Some(cache) = self.cache() else { return Ok(None) };
        Ok(Some(cache.driver()?.device_address(self.ptr)?))
    }

    /// Usable bytes: the requested bytes, rounded up to 512 bytes, or above 1 MiB to 4 KiB.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        rounded(self.requested)
    }

    /// The requested bytes.
    #[must_use]
    pub const fn requested(&self) -> u64 {
        self.requested
    }

    /// Returns whether the allocation has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requested == 0
    }

    /// The requested bytes. The contents of new memory are unspecified.
    ///
    /// # Safety
    ///
    /// 1. While the slice lives, the device does not write the memory.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the memory exists, so its size fits")]
    pub const unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the block has at least as many bytes. All are initialised: `HostMemory::allocate_pinned` promises so,
        // and memory that is registered is allocated zeroed. The host writes them only through `&mut self`; the device
        // does not, by promise 1.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.requested as usize) }
    }

    /// The requested bytes, for changes.
    ///
    /// # Safety
    ///
    /// 1. While the slice lives, the device neither reads nor writes the memory.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the memory exists, so its size fits")]
    pub const unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the owner is borrowed exclusively. By promise 1 the device does not use the memory.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.requested as usize) }
    }

    /// Records that work in `stream` uses the memory. After the drop, the memory is reused only when the work then
    /// queued in `stream` has finished. The stream may belong to another allocator.
    ///
    /// While `stream` is captured, the memory is kept for the graph instead. It is not reused before the last graph of
    /// the pool that serves the capture is gone. Without such a pool it is kept until the allocator is dropped.
    pub fn record_stream(&self, stream: &Stream<D>) {
        if let Some(cache) = self.cache() {
            let state = &stream.stream_state;
            let own = Arc::ptr_eq(&state.shared, &cache.shared);
            cache.record_use(self.id, state, own.then_some(&*cache.routes));
        }
    }

    /// Gives up ownership and returns the address, which is null for no bytes. The caller must free the memory with
    /// [`Pinned::free_raw`](super::Pinned::free_raw).
    #[must_use = "the address is the only way to free the memory"]
    pub fn into_raw(mut self) -> *mut u8 {
        let Some(cache) = self.cache() else { return std::ptr::null_mut() };
        cache.blocks.lock().make_raw(self.id);
        self.id = BlockId::NONE;
        self.ptr.as_ptr()
    }

    /// The cache of the block, if there is a block.
    #[inline(always)]
    fn cache(&self) -> Option<&PinnedCache<D>> {
        if !self.id.is_some() {
            return None;
        }
        // SAFETY: the cache is alive while any of its blocks has an owner, and this is the owner of one.
        Some(unsafe { self.cache.as_ref() })
    }
}

impl<D: Device> fmt::Debug for PinnedAllocation<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedAllocation")
            .field("address", &format_args!("{:p}", self.ptr))
            .field("bytes", &self.bytes())
            .field("requested", &self.requested)
            .finish_non_exhaustive()
    }
}

impl<D: Device> Drop for PinnedAllocation<D> {
    #[inline]
    fn drop(&mut self) {
        if let Some(cache) = self.cache()
            && let Some(freed) = cache.free(self.id)
        {
            // A destructor cannot return a failure, and the cache retries.
            let _ = freed.end();
        }
    }
}

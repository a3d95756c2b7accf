//! The owner of a pinned allocation.

use std::ptr::NonNull;
use std::slice;

use cachette_hal::{AnyDevice, Device, DevicePtr};

use super::bucket::PinnedPlace;
use super::cache::{PinnedBlock, PinnedCache};
use crate::error::Error;
use crate::stream::Stream;

/// Pinned host memory that goes back to its allocator when dropped.
///
/// It belongs to no stream. Before it is dropped, every stream in which work that uses it was queued must have been
/// waited for or [recorded](Self::record_stream).
#[derive(Debug)]
pub struct PinnedAllocation<D: Device = AnyDevice> {
    /// Alive while any block has an owner; dangling if there is no block.
    cache: NonNull<PinnedCache<D>>,
    ptr: NonNull<u8>,
    requested: usize,
    place: PinnedPlace,
}

// SAFETY: the pointer to the cache is to something `Sync`; the memory is this owner's alone, and no thread's.
unsafe impl<D: Device> Send for PinnedAllocation<D> {}
// SAFETY: shared references read plain fields, and call the cache, which takes its locks; reading the memory is the
// caller's to promise.
unsafe impl<D: Device> Sync for PinnedAllocation<D> {}

impl<D: Device> PinnedAllocation<D> {
    pub(super) const fn empty() -> Self {
        Self { cache: NonNull::dangling(), ptr: NonNull::dangling(), requested: 0, place: PinnedPlace::NOWHERE }
    }

    #[inline(always)]
    pub(super) fn new(cache: &PinnedCache<D>, (place, ptr): PinnedBlock, requested: usize) -> Self {
        Self { cache: NonNull::from(cache), ptr, requested, place }
    }

    /// The first byte, as the host sees it; dangling for an allocation of no bytes.
    #[must_use]
    pub const fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// The first byte, as the device sees it; `None` for an allocation of no bytes.
    pub fn device_address(&self) -> Result<Option<DevicePtr>, Error> {
        let Some(cache) = self.cache() else { return Ok(None) };
        cache.shared.origin.check()?;
        Ok(Some(cache.driver()?.device_address(self.ptr)?))
    }

    /// Bytes that may be used: what was asked for, rounded up to a power of two.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.place.bytes() }
    }

    /// Bytes that were asked for.
    #[must_use]
    pub const fn requested(&self) -> usize {
        self.requested
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requested == 0
    }

    /// The bytes that were asked for. New memory holds whatever it held before.
    ///
    /// # Safety
    ///
    /// 1. While the slice lives, the device does not write the memory.
    #[must_use]
    pub const unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the block has at least as many bytes. All are initialised: `HostMemory::allocate_pinned` promises so,
        // and memory that is registered is allocated zeroed. The host writes them only through `&mut self`; the device
        // does not, by promise 1.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.requested) }
    }

    /// The bytes that were asked for, to be changed.
    ///
    /// # Safety
    ///
    /// 1. While the slice lives, the device neither reads nor writes the memory.
    #[must_use]
    pub const unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the owner is borrowed alone, and the device is away, by promise 1.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.requested) }
    }

    /// Records that work in `stream` uses the memory. After the drop, the memory serves another request only when the
    /// work queued in `stream` by then has finished. The stream may belong to another allocator.
    ///
    /// While `stream` is captured, the memory is kept for the graph instead. It serves no other request before the last
    /// graph of the pool that serves the capture is gone. Without such a pool it is kept until the allocator is gone.
    pub fn record_stream(&self, stream: &Stream<D>) {
        if let Some(cache) = self.cache()
            && !cache.shared.origin.is_inherited()
        {
            cache.record_use(self.place, &stream.stream_state);
        }
    }

    /// Gives up ownership: from now on the memory is known by its address alone, and must be freed by
    /// [`Pinned::free_raw`](super::Pinned::free_raw). Null for an allocation of no bytes.
    #[must_use = "the address is the only way to free the memory"]
    pub fn into_raw(mut self) -> *mut u8 {
        let Some(cache) = self.cache() else { return std::ptr::null_mut() };
        if !cache.shared.origin.is_inherited() {
            cache.bucket(self.place).lock().make_raw(self.place.slot);
        }
        self.place = PinnedPlace::NOWHERE;
        self.ptr.as_ptr()
    }

    /// The cache that the block goes back to, if there is a block.
    #[inline(always)]
    fn cache(&self) -> Option<&PinnedCache<D>> {
        if self.place == PinnedPlace::NOWHERE {
            return None;
        }
        // SAFETY: it is alive while any block of it has an owner, and this is the owner of one.
        Some(unsafe { self.cache.as_ref() })
    }
}

impl<D: Device> Drop for PinnedAllocation<D> {
    #[inline]
    fn drop(&mut self) {
        if let Some(cache) = self.cache()
            && let Some(freed) = cache.free(self.place)
        {
            // A destructor cannot return a failure, and the cache will try again.
            let _ = freed.end();
        }
    }
}

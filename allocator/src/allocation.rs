//! The owner of device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use cachette_hal::{self as hal, AnyDevice, Device, DevicePtr, StreamRef, Use};

use crate::blocks::BlockId;
use crate::error::Error;
use crate::heap::{Allocated, Heap};
use crate::label::Label;
use crate::pool::pool_state::{AwakeGuard, PoolState};
use crate::stream::Stream;
use crate::uncached::Uncached;

/// Device memory that returns to its allocator when dropped.
///
/// It belongs to a stream, and work queued there may use it at once. After a drop, the next request of that stream can
/// reuse the memory immediately, because the stream runs in order. Before other streams use it, see
/// [`record_stream`](Self::record_stream).
// A caller that unwraps a `Result` copies the allocation: the first and the last word singly, the others in pairs. The
// load of a pair stalls until its two stores have reached the cache. The fields that a drop reads are first and last,
// so a drop does not stall.
#[repr(C)]
pub struct Allocation<D: Device = AnyDevice> {
    /// The heap, or the uncached memory, depending on `place`.
    home: NonNull<()>,
    address: u64,
    bytes: u64,
    requested: u64,
    stream: StreamRef,
    /// The kind of the home; for a heap, the index of the block.
    place: u64,
    owner: PhantomData<Owner<D>>,
}

/// The `place` without a home: no memory, or already released.
const NOWHERE: u64 = u64::MAX;
/// The `place` of memory that bypasses the cache.
const DEVICE: u64 = u64::MAX - 1;

/// The owner of an allocation's memory, decoded from its home and place.
enum Owner<D: Device> {
    /// A block of a heap. The heap keeps itself alive while any block is allocated.
    Heap(NonNull<Heap<D>>, BlockId),
    /// The device: memory that bypasses the cache, from a box.
    Device(NonNull<Uncached<D>>),
    /// No owner: no memory, or already released.
    None,
}

// SAFETY: the home is a heap, which is `Sync`, or uncached memory, which is `Send` and has this one owner;
// `homes_cross_threads` checks both. The block has this one owner.
unsafe impl<D: Device> Send for Allocation<D> {}
// SAFETY: shared references read plain fields and call methods of homes, all `Sync`, as `homes_cross_threads` checks.
unsafe impl<D: Device> Sync for Allocation<D> {}

#[expect(dead_code, reason = "the compiler checks it, and nothing calls it")]
const fn homes_cross_threads<D: Device>() {
    const fn is_sync<T: Sync>() {}
    const fn is_send<T: Send>() {}
    is_sync::<Heap<D>>();
    is_send::<Uncached<D>>();
    is_sync::<Uncached<D>>();
}

impl<D: Device> Allocation<D> {
    /// The address of the first byte; zero for an allocation of no bytes.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The first byte; `None` for an allocation of no bytes.
    #[must_use]
    pub const fn ptr(&self) -> Option<DevicePtr> {
        DevicePtr::new(self.address)
    }

    /// Usable bytes: the requested bytes, rounded up.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The requested bytes.
    #[must_use]
    pub const fn requested(&self) -> u64 {
        self.requested
    }

    /// The stream of the allocation.
    #[must_use]
    pub const fn stream(&self) -> StreamRef {
        self.stream
    }

    /// Returns whether the allocation has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.address == 0
    }

    /// Returns whether the memory's pool sleeps: until it wakes, there is no memory at the address.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.pool().is_some_and(|pool| pool.is_asleep())
    }

    #[inline(always)]
    fn owner(&self) -> Owner<D> {
        if let Ok(number) = u32::try_from(self.place) {
            Owner::Heap(self.home.cast(), BlockId(number))
        } else if self.place == DEVICE {
            Owner::Device(self.home.cast())
        } else {
            Owner::None
        }
    }

    /// The heap and the block of the memory, if it is cached.
    pub(crate) fn block(&self) -> Option<(&Heap<D>, BlockId)> {
        let Owner::Heap(heap, id) = self.owner() else { return None };
        // SAFETY: the heap keeps itself alive while any block of it is allocated, and this one is.
        Some((unsafe { heap.as_ref() }, id))
    }

    /// Keeps the memory's pool awake while work is queued. Fails if the pool sleeps; `None` if it cannot sleep.
    pub(crate) fn stay_awake(&self) -> Result<Option<AwakeGuard>, Error> {
        self.pool().map(|pool| pool.stay_awake()).transpose()
    }

    fn pool(&self) -> Option<Arc<PoolState>> {
        self.block()?.0.pool()
    }

    /// Records that `stream` also uses the memory. After a drop, the memory is not reused until the work that is then
    /// queued in `stream` has finished.
    ///
    /// The allocation's own stream needs no record. A stream of another allocator is allowed.
    pub fn record_stream(&self, stream: &Stream<D>) {
        match self.owner() {
            Owner::Heap(heap, id) => {
                // SAFETY: the heap keeps itself alive while any block of it is allocated, and this one is.
                unsafe { heap.as_ref() }.record_use(id, &stream.stream_state, false);
            }
            // SAFETY: the box lives until its one owner, this allocation, is dropped or gives it up.
            Owner::Device(memory) => unsafe { memory.as_ref() }.record_use(&stream.heap.shared),
            Owner::None => {}
        }
    }

    /// Frees the memory at once. Its next use, on any stream, waits on the device for the work queued in `streams` now.
    ///
    /// Unlike [`record_stream`](Self::record_stream), this polls nothing, and no memory stays idle. Streams of another
    /// allocator may have another driver, so they are polled. After a failure the memory is freed later.
    pub fn release_after(mut self, streams: &[&Stream<D>]) -> hal::Result<()> {
        let Owner::Heap(heap, id) = self.owner() else {
            for stream in streams {
                self.record_stream(stream);
            }
            return Ok(());
        };
        self.place = NOWHERE;
        // SAFETY: as in `record_stream`; this call frees the block, which is not used after it.
        let heap = unsafe { heap.as_ref() };
        if heap.shared.origin.is_inherited() {
            return Ok(());
        }
        for stream in streams {
            heap.record_use(id, &stream.stream_state, true);
        }
        heap.free(id).end()
    }

    /// Gives up ownership and returns the address. The caller must free the memory with
    /// [`Allocator::free_raw`](crate::Allocator::free_raw).
    ///
    /// Of memory from [`Allocator::allocate_aligned`](crate::Allocator::allocate_aligned) it is the address of the
    /// block, which may begin before the memory.
    #[must_use = "the address is the only way to free the memory"]
    pub fn into_raw(self) -> u64 {
        self.into_raw_as(Label::NONE)
    }

    /// Does the same as [`into_raw`](Self::into_raw), for a library that snapshots show by its label.
    #[must_use = "the address is the only way to free the memory"]
    pub fn into_raw_as(mut self, label: Label) -> u64 {
        let owner = self.owner();
        self.place = NOWHERE;
        match owner {
            Owner::Heap(heap, id) => {
                // SAFETY: as in `record_stream`.
                let block_bytes = unsafe { heap.as_ref() }.make_raw(id, label);
                self.address - (block_bytes - self.bytes)
            }
            Owner::Device(memory) => unbox(memory).make_raw(),
            Owner::None => 0,
        }
    }

    /// The part of the memory that begins at a multiple of `align` and has `bytes` bytes, which were requested.
    pub(crate) const fn aligned(mut self, align: u64, bytes: u64) -> Self {
        let skipped = self.address.next_multiple_of(align) - self.address;
        self.address += skipped;
        self.bytes -= skipped;
        self.requested = bytes;
        self
    }
}

impl<D: Device> Stream<D> {
    /// Reports that work which the caller queues in the stream now uses the memory, such as a kernel.
    ///
    /// Only the device of the crate `cachette-sanitizer` uses the report. For other devices the call is empty.
    #[inline]
    pub fn uses(&self, memory: &Allocation<D>, access: Use) {
        if let Some(at) = memory.ptr() {
            self.device().uses(self.handle(), at, memory.requested(), access);
        }
    }
}

/// The result of a request: an owner of the memory, or its address only.
pub(crate) trait Answer<D: Device>: Sized {
    fn empty(stream: StreamRef) -> Self;

    fn of_block(heap: &Arc<Heap<D>>, block: &Allocated, requested: u64) -> Self;

    fn of_device(memory: Uncached<D>, requested: u64, stream: StreamRef) -> Self;
}

impl<D: Device> Answer<D> for Allocation<D> {
    fn empty(stream: StreamRef) -> Self {
        Self {
            home: NonNull::dangling(),
            address: 0,
            bytes: 0,
            requested: 0,
            stream,
            place: NOWHERE,
            owner: PhantomData,
        }
    }

    #[inline(always)]
    fn of_block(heap: &Arc<Heap<D>>, allocated: &Allocated, requested: u64) -> Self {
        Self {
            home: NonNull::from(&**heap).cast(),
            address: allocated.address,
            bytes: allocated.bytes,
            requested,
            stream: heap.stream_state.handle,
            place: allocated.id.0.into(),
            owner: PhantomData,
        }
    }

    fn of_device(memory: Uncached<D>, requested: u64, stream: StreamRef) -> Self {
        Self {
            address: memory.address(),
            home: NonNull::from(Box::leak(Box::new(memory))).cast(),
            bytes: requested,
            requested,
            stream,
            place: DEVICE,
            owner: PhantomData,
        }
    }
}

impl<D: Device> Drop for Allocation<D> {
    #[inline]
    fn drop(&mut self) {
        match self.owner() {
            Owner::Heap(heap, id) => {
                // SAFETY: the heap keeps itself alive while any block of it is allocated, and this one is until the
                // call. The heap may be destroyed with the result, after the reference to it.
                let freed = unsafe { heap.as_ref() }.free(id);
                // A destructor cannot return a failure, and the heap retries.
                let _ = freed.end();
            }
            Owner::Device(memory) => free_device_memory(memory),
            Owner::None => {}
        }
    }
}

/// Frees memory that bypassed the cache. It is a separate function, so that the fast path saves no registers.
#[cold]
#[inline(never)]
fn free_device_memory<D: Device>(memory: NonNull<Uncached<D>>) {
    drop(unbox(memory));
}

/// Returns the memory that [`Allocation::of_device`] put into a box. Its owner is being dropped, or has forgotten it.
#[cold]
fn unbox<D: Device>(memory: NonNull<Uncached<D>>) -> Uncached<D> {
    // SAFETY: it came from a box, and only its one owner calls this, once.
    *unsafe { Box::from_raw(memory.as_ptr()) }
}

impl<D: Device> fmt::Debug for Allocation<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation")
            .field("address", &format_args!("{:#x}", self.address))
            .field("bytes", &self.bytes)
            .field("requested", &self.requested)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

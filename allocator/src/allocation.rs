//! What a caller holds.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cachette_hal::{self as hal, Device, DevicePtr, StreamRef};

use crate::core::BlockId;
use crate::heap::{Heap, Taken};
use crate::lane::{Lane, Stream};
use crate::uncached::Uncached;

/// Device memory that goes back to its allocator when dropped.
///
/// It belongs to a stream: work queued there may use it at once, and when it is dropped the memory serves the
/// next request of that stream at once, because the stream runs in order. Before other streams use it, see
/// [`record_stream`](Self::record_stream).
pub struct Allocation<D: Device> {
    address: u64,
    bytes: u64,
    requested: u64,
    stream: StreamRef,
    owner: Owner<D>,
}

/// Where an allocation's memory goes back to.
enum Owner<D: Device> {
    /// A block of a heap; the heap keeps itself alive while any is allocated.
    Heap(NonNull<Heap<D>>, BlockId),
    /// The device, past the cache.
    Device(Box<Uncached<D>>),
    /// Nowhere: no memory, or given back already.
    Nobody,
}

// SAFETY: the pointer is to a heap, which is `Sync` as all its fields are; the block is this owner's alone.
unsafe impl<D: Device> Send for Allocation<D> {}
// SAFETY: shared references only read plain fields, and call heap methods that take its lock.
unsafe impl<D: Device> Sync for Allocation<D> {}

impl<D: Device> Allocation<D> {
    /// An allocation of no bytes: it has no memory, and no address.
    pub(crate) const fn empty(stream: StreamRef) -> Self {
        Self {
            address: 0,
            bytes: 0,
            requested: 0,
            stream,
            owner: Owner::Nobody,
        }
    }

    /// Owns a block that was taken from `heap` for `stream`.
    #[inline]
    pub(crate) fn of_block(
        heap: &Arc<Heap<D>>,
        taken: &Taken,
        requested: u64,
        stream: StreamRef,
    ) -> Self {
        Self {
            address: taken.address,
            bytes: taken.bytes,
            requested,
            stream,
            owner: Owner::Heap(NonNull::from(&**heap), taken.id),
        }
    }

    /// Owns memory that came past the cache.
    pub(crate) fn of_device(memory: Uncached<D>, requested: u64, stream: StreamRef) -> Self {
        Self {
            address: memory.address(),
            bytes: requested,
            requested,
            stream,
            owner: Owner::Device(Box::new(memory)),
        }
    }

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

    /// Bytes that may be used: what was asked for, rounded up.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that were asked for.
    #[must_use]
    pub const fn requested(&self) -> u64 {
        self.requested
    }

    /// The stream it was allocated for.
    #[must_use]
    pub const fn stream(&self) -> StreamRef {
        self.stream
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.address == 0
    }

    /// The heap and block, if the memory is cached.
    fn block(&self) -> Option<(&Heap<D>, BlockId)> {
        match &self.owner {
            // SAFETY: the heap keeps itself alive while any block of it is allocated, and this one is.
            Owner::Heap(heap, id) => Some((unsafe { heap.as_ref() }, *id)),
            Owner::Device(_) | Owner::Nobody => None,
        }
    }

    /// Says that `stream` uses the memory too: it will not serve another request before the work that is in
    /// `stream` when the allocation is dropped has finished.
    ///
    /// The owner's own stream needs no record.
    pub fn record_stream(&self, stream: &Stream<D>) {
        match &self.owner {
            Owner::Heap(..) => {
                if let Some((heap, id)) = self.block() {
                    heap.record_use(id, &stream.lane);
                }
            }
            // Freed straight to the device, which waits for every stream.
            Owner::Device(_) | Owner::Nobody => {}
        }
    }

    /// Gives the memory back at once, although `streams` still use it: its next use, on whichever stream, is
    /// made to wait on the device for the work that is in them now.
    ///
    /// Unlike [`record_stream`](Self::record_stream) nothing is polled, and no memory lies idle until
    /// somebody looks. On failure the memory is still given back, later.
    pub fn release_after(mut self, streams: &[&Stream<D>]) -> hal::Result<()> {
        let Owner::Heap(heap, id) = std::mem::replace(&mut self.owner, Owner::Nobody) else {
            return Ok(());
        };
        let lanes: Vec<Arc<Lane<D>>> = streams.iter().map(|s| Arc::clone(&s.lane)).collect();
        // SAFETY: as in `block`; the block is given back by this call and not used after it.
        unsafe { heap.as_ref() }.give_after(id, &lanes).end()
    }

    /// Gives up ownership: from now on the memory is known by its address alone, and must be freed by
    /// [`Allocator::free_raw`](crate::Allocator::free_raw).
    #[must_use = "the address is the only way to free the memory"]
    pub fn into_raw(mut self) -> u64 {
        if let Some((heap, id)) = self.block() {
            heap.make_raw(id);
            self.owner = Owner::Nobody;
        }
        if let Owner::Device(memory) = std::mem::replace(&mut self.owner, Owner::Nobody) {
            memory.make_raw();
        }
        self.address
    }
}

impl<D: Device> Drop for Allocation<D> {
    #[inline]
    fn drop(&mut self) {
        if let Owner::Heap(heap, id) = &self.owner {
            // SAFETY: the heap keeps itself alive while any block of it is allocated, and this one is until
            // the call; the heap may end with what it returns, after the reference to it.
            let given = unsafe { heap.as_ref() }.give(*id);
            // A destructor has nobody to tell of a failure, and the heap will try again.
            let _ = given.end();
        }
    }
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

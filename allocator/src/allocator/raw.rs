//! Memory identified by its address only, for callers in other languages.

use std::convert::identity;
use std::sync::Arc;

use cachette_hal::{Device, StreamRef};

use crate::address_index::SegmentRef;
use crate::allocation::Answer;
use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::blocks::{Block, BlockId, BlockState, SegmentId};
use crate::error::{Error, PointerProblem};
use crate::heap::{Allocated, FastGuard, Heap, Request};
use crate::label::Label;
use crate::pool::PoolId;
use crate::size::TOO_LARGE;
use crate::sync::thread;
use crate::uncached::{HeldBy, Uncached};

/// An address that the caller frees; zero for no bytes.
impl<D: Device> Answer<D> for u64 {
    fn empty(_stream: StreamRef) -> Self {
        0
    }

    #[inline(always)]
    fn of_block(_heap: &Arc<Heap<D>>, block: &Allocated, _requested: u64) -> Self {
        block.address
    }

    fn of_device(memory: Uncached<D>, _requested: u64, _stream: StreamRef) -> Self {
        let address = memory.address();
        memory.make_raw();
        address
    }
}

impl<D: Device> Allocator<D> {
    /// Allocates for work in a stream that the caller owns. Returns the address, or zero for no bytes.
    ///
    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    #[inline]
    pub unsafe fn allocate_raw(&self, bytes: u64, stream: StreamRef) -> Result<u64, Error> {
        // SAFETY: the caller's promises.
        unsafe { self.allocate_raw_as(bytes, stream, Label::NONE) }
    }

    /// Does the same as [`allocate_raw`](Self::allocate_raw), for a library that snapshots show by its label.
    ///
    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    #[inline]
    pub unsafe fn allocate_raw_as(&self, bytes: u64, stream: StreamRef, label: Label) -> Result<u64, Error> {
        // SAFETY: the caller's promises.
        unsafe { self.allocate_raw_or(bytes, stream, label, identity) }
    }

    /// Does the same as [`allocate_raw_as`](Self::allocate_raw_as), and converts an error before it returns. A caller
    /// whose error has one word is faster, because results then fit into registers.
    ///
    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    #[inline]
    pub unsafe fn allocate_raw_or<E>(
        &self,
        bytes: u64,
        stream: StreamRef,
        label: Label,
        convert: impl FnOnce(Error) -> E,
    ) -> Result<u64, E> {
        match self.inner().last_heap(stream) {
            Some(heap) if thread::entered() == 0 => self.allocate_fast(bytes, heap, label, convert),
            _ => self.allocate_raw_elsewhere(bytes, stream, label, convert),
        }
    }

    /// Serves requests in another stream than the last one of this thread, of unusual sizes, and from an entered pool.
    #[inline(never)]
    fn allocate_raw_elsewhere<E>(
        &self,
        bytes: u64,
        stream: StreamRef,
        label: Label,
        convert: impl FnOnce(Error) -> E,
    ) -> Result<u64, E> {
        let serve = || {
            // Before the lookup, which may adopt the stream.
            if bytes == 0 || bytes >= TOO_LARGE {
                return self.allocate_uncached(bytes, stream);
            }
            let mut heap = self.inner().heap_of_raw(stream)?;
            let mut label = label;
            if thread::entered() > 0 {
                heap = self.inner().heap_inside(stream, &heap.stream_state)?.unwrap_or(heap);
                label = Label::of_thread().unwrap_or(label);
            }
            thread::set_last_heap(heap.number);
            self.allocate_fast(bytes, heap, label, identity)
        };
        serve().map_err(convert)
    }

    /// Does the same as [`allocate_raw_as`](Self::allocate_raw_as) if the last-freed block serves and this thread owns
    /// the lock of its heap; otherwise `None`. It never waits, so the caller may hold locks of others.
    ///
    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    #[inline]
    #[must_use]
    pub unsafe fn allocate_raw_last_freed(&self, bytes: u64, stream: StreamRef, label: Label) -> Option<u64> {
        if thread::entered() > 0 {
            return None;
        }
        let heap = self.inner().known_heap(stream)?;
        let allocated = heap.allocate_fast(Request { requested: bytes, label }).ok()?;
        thread::set_last_heap(heap.number);
        Some(allocated.address)
    }

    /// Frees memory from [`allocate_raw`](Self::allocate_raw) or [`Allocation::into_raw`](crate::Allocation::into_raw).
    /// Zero is ignored.
    ///
    /// After a failure of the driver the memory still counts as freed, and becomes available later. In a forked child
    /// the call does nothing.
    #[inline(always)]
    pub fn free_raw(&self, address: u64) -> Result<(), Error> {
        // A lookup takes most of the time of a free, and temporary memory is freed before anything else is allocated.
        let last = self.inner().heaps.get(thread::last_heap());
        match last.map(|heap| (heap, heap.free_last_found(address))) {
            Some((_, Ok(()))) => Ok(()),
            Some((heap, Err(held))) => self.free_raw_at_home(held.map(|state| (heap, state)), address),
            None => self.free_raw_at_home(None, address),
        }
    }

    /// Frees memory that is not the newest of this thread, which may hold the lock of its last heap.
    #[inline(never)]
    fn free_raw_at_home(&self, held: Option<(&Arc<Heap<D>>, FastGuard<'_, D>)>, address: u64) -> Result<(), Error> {
        // Nearly all memory of a thread is in its last heap, and that has one elastic segment.
        if let Some((heap, state)) = held
            && let Some(freed) = heap.free_at_locked(state, SegmentId::FIRST, address)
        {
            return freed.end().map_err(Error::from);
        }
        if let Some((heap, segment)) = self.likely_home(address)
            && let Some(freed) = heap.free_at(segment, address)
        {
            return freed.end().map_err(Error::from);
        }
        self.free_raw_slow(address)
    }

    /// Frees as [`free_raw`](Self::free_raw) does, behind the work that is in `stream` now; see
    /// [`Allocation::release_after`](crate::Allocation::release_after).
    ///
    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    #[inline]
    pub unsafe fn free_raw_after(&self, address: u64, stream: StreamRef) -> Result<(), Error> {
        if let Some((heap, segment)) = self.likely_home(address)
            && heap.stream_state.handle == stream
            && let Some(freed) = heap.free_at(segment, address)
        {
            return freed.end().map_err(Error::from);
        }
        // SAFETY: the caller's promises.
        unsafe { self.free_raw_lent(address, stream) }
    }

    /// The heap and the segment that nearly always contain `address`, if any does.
    #[inline(always)]
    fn likely_home(&self, address: u64) -> Option<(&Heap<D>, SegmentId)> {
        let home = self.inner().shared.index.find_one(address)?;
        Some((self.inner().heaps.get(home.heap)?, home.segment))
    }

    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    #[cold]
    unsafe fn free_raw_lent(&self, address: u64, stream: StreamRef) -> Result<(), Error> {
        if !self.inner().shared.origin.is_inherited()
            && let Ok((heap, id)) = self.find(address)
        {
            heap.record_use(id, &self.inner().heap_of_raw(stream)?.stream_state, true);
        }
        self.free_raw_slow(address)
    }

    /// Frees memory that is not in its likely home.
    #[cold]
    fn free_raw_slow(&self, address: u64) -> Result<(), Error> {
        let shared = &self.inner().shared;
        if address == 0 || shared.origin.is_inherited() {
            return Ok(());
        }
        for home in self.inner().homes(address) {
            if let Some(heap) = self.inner().heaps.get(home.heap)
                && let Some(freed) = heap.free_at_shared(home.segment, address)
            {
                return Ok(freed.end()?);
            }
        }
        if let Some(freed) = shared.uncached.free(&shared.device, address, HeldBy::Address) {
            return Ok(freed?);
        }
        Err(Error::InvalidPointer { address, why: self.diagnose(address) })
    }

    /// Records that `stream` also uses the memory at `address`; see
    /// [`Allocation::record_stream`](crate::Allocation::record_stream). Zero is ignored.
    ///
    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    pub unsafe fn record_stream_raw(&self, address: u64, stream: StreamRef) -> Result<(), Error> {
        if address == 0 || self.inner().shared.uncached.bytes_at(address).is_some() {
            return Ok(());
        }
        let (heap, id) = self.find(address)?;
        heap.record_use(id, &self.inner().heap_of_raw(stream)?.stream_state, false);
        Ok(())
    }

    /// Returns the device memory that contains an allocation: its first address and its size in bytes.
    pub fn base_allocation(&self, address: u64) -> Result<(u64, u64), Error> {
        if let Some(bytes) = self.inner().shared.uncached.bytes_at(address) {
            return Ok((address, bytes));
        }
        let (heap, id) = self.find(address)?;
        let state = heap.state.lock();
        let segment = state.blocks.segment_of(id);
        let segment = segment.ok_or(Error::InvalidPointer { address, why: PointerProblem::Free })?;
        Ok((segment.base, segment.bytes))
    }

    /// Returns the size of the allocation that begins at `address`, in bytes.
    pub fn bytes_at(&self, address: u64) -> Result<u64, Error> {
        self.read_at(address, Block::bytes)
    }

    /// What the caller asked for of the allocation that begins at `address`.
    pub fn requested_at(&self, address: u64) -> Result<u64, Error> {
        self.read_at(address, |block| block.requested)
    }

    /// Returns the pool whose memory contains an address, allocated or not. `None` if no pool's does.
    #[must_use]
    pub fn pool_at(&self, address: u64) -> Option<PoolId> {
        self.inner().homes(address).find_map(|home| {
            let heap = self.inner().heaps.get(home.heap)?;
            heap.around(address).map(|_| heap.pool_id())
        })
    }

    /// Returns whether the memory behind an address never changes while it is allocated or cached, so that it may be
    /// registered: in a [registered](crate::PoolOptions::registered) pool, in a direct segment, or outside the cache.
    ///
    /// Elsewhere the memory behind an address can change after a free and by sleep. A registration by address then leads
    /// to memory of another owner.
    #[must_use]
    pub fn is_stable(&self, address: u64) -> bool {
        let of_heap = |home: SegmentRef| {
            let heap = self.inner().heaps.get(home.heap)?;
            heap.around(address).map(|_| !heap.is_elastic() || heap.is_registered())
        };
        let stable = self.inner().homes(address).find_map(of_heap);
        stable.unwrap_or_else(|| self.inner().shared.uncached.bytes_at(address).is_some())
    }

    fn read_at(&self, address: u64, read: fn(&Block) -> u64) -> Result<u64, Error> {
        if let Some(bytes) = self.inner().shared.uncached.bytes_at(address) {
            return Ok(bytes);
        }
        let (heap, id) = self.find(address)?;
        Ok(read(&heap.state.lock().blocks.blocks[id]))
    }

    pub(crate) fn find(&self, address: u64) -> Result<(Arc<Heap<D>>, BlockId), Error> {
        for home in self.inner().homes(address) {
            let Some(heap) = self.inner().heaps.get(home.heap) else { continue };
            let state = heap.state.lock();
            if let Some(id) = state.blocks.find(home.segment, address) {
                if state.blocks.blocks[id].state == BlockState::Allocated {
                    return Ok((Arc::clone(heap), id));
                }
                return Err(Error::InvalidPointer { address, why: PointerProblem::FreedTwice });
            }
        }
        Err(Error::InvalidPointer { address, why: self.diagnose(address) })
    }

    fn diagnose(&self, address: u64) -> PointerProblem {
        match self.inner().block_around(address) {
            None if self.inner().shared.uncached.is_freed(address) => PointerProblem::FreedTwice,
            None => PointerProblem::Foreign,
            Some((start, BlockState::Allocated)) if start == address => PointerProblem::Owned,
            Some((start, BlockState::Allocated)) => PointerProblem::Interior { start, offset: address - start },
            Some((_, BlockState::Pending)) => PointerProblem::FreedTwice,
            Some(_) => PointerProblem::Free,
        }
    }
}

impl<D: Device> AllocatorState<D> {
    pub(crate) fn homes(&self, address: u64) -> impl Iterator<Item = SegmentRef> {
        let index = &self.shared.index;
        index.find(address).into_iter().chain([index.find_other(address)]).flatten()
    }

    /// The start of the block that contains an address, and its state.
    pub(crate) fn block_around(&self, address: u64) -> Option<(u64, BlockState)> {
        self.homes(address).find_map(|home| self.heaps.get(home.heap)?.around(address))
    }
}

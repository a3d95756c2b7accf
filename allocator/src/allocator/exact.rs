//! Allocates memory at an address that the caller names.

use std::sync::Arc;

use cachette_hal::{Device, StreamRef};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::{AddressProblem, Error};
use crate::heap::{Heap, Request};
use crate::label::Label;
use crate::observe::history::Level;
use crate::retry::{FoundBlock, pass_guards};
use crate::size::{TOO_LARGE, UNIT};
use crate::sync::thread;

impl<D: Device> Allocator<D> {
    /// Allocates `bytes` bytes at `address`, which is free memory of the stream and of the pool that serves the request.
    ///
    /// Graphs need that: the tensors that they read and write can be freed between launches, and made again where the
    /// graphs expect them. The memory is freed like that of [`allocate_raw`](Self::allocate_raw). Zero bytes allocate
    /// nothing. The request never asks the device for memory, and fails if other memory than free memory lies there.
    ///
    /// # Safety
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    pub unsafe fn allocate_raw_at(
        &self,
        address: u64,
        bytes: u64,
        stream: StreamRef,
        label: Label,
    ) -> Result<(), Error> {
        let inner = self.inner();
        inner.shared.origin.check()?;
        if bytes == 0 {
            return Ok(());
        }
        if bytes >= TOO_LARGE {
            return Err(Error::TooLarge { bytes });
        }
        let refuse = |why| Err(Error::AddressNotFree { address, bytes, why });
        if !address.is_multiple_of(UNIT) {
            return refuse(AddressProblem::Misaligned);
        }
        let home = inner.homes(address).next();
        let Some((home, segment)) = home.and_then(|home| Some((inner.heaps.get(home.heap)?, home.segment))) else {
            return refuse(AddressProblem::Foreign);
        };
        let asked = inner.heap_for(stream)?;
        let direct = asked.direct.get().and_then(|number| inner.heaps.get(*number));
        let Some(heap) = [Some(asked), direct].into_iter().flatten().find(|heap| Arc::ptr_eq(heap, home)) else {
            return refuse(AddressProblem::Elsewhere);
        };
        let _gathered = inner.shared.history.gather(Level::State);
        let request = Request { requested: bytes, label: Label::OWNED };
        let Some(allocated) = heap.allocate_at(request, segment, address)? else {
            return refuse(heap.why_not_free(address, bytes));
        };
        let mut found = FoundBlock::of(heap, allocated);
        pass_guards(&mut found, &heap.stream_state)?;
        // Nothing can fail any more, so the address may become known.
        found.heap.make_raw(found.allocated.id, label);
        Ok(())
    }
}

impl<D: Device> AllocatorState<D> {
    /// Returns the heap that serves requests of a stream on this thread.
    fn heap_for(&self, stream: StreamRef) -> Result<&Arc<Heap<D>>, Error> {
        let heap = self.heap_of_raw(stream)?;
        let stream_state = &heap.stream_state;
        if thread::entered() > 0
            && let Some(inside) = self.heap_inside(stream, stream_state)?
        {
            return Ok(inside);
        }
        let routed = heap.state.lock().routed;
        let pool = if routed { self.routes.pool_for(stream_state.handle, || stream_state.capture())? } else { None };
        pool.as_ref().map_or(Ok(heap), |pool| self.heap_of_stream_state(pool, stream_state))
    }
}

//! Finds a block when the heap of the stream has none: by a route, or by the retry steps.

use std::sync::Arc;

use cachette_hal::Device;

use crate::allocator::allocator_state::AllocatorState;
use crate::elastic::Wanted;
use crate::error::Error;
use crate::heap::{Allocated, Heap, Request};
use crate::label::Label;
use crate::observe::history::Level;
use crate::retry::{FoundBlock, Retry, pass_guards};

impl<D: Device> AllocatorState<D> {
    /// Continues a request for which no block fits, or whose block has guards. Fails in a forked child.
    #[cold]
    pub(crate) fn find_block_slow(
        &self,
        heap: &Arc<Heap<D>>,
        request: Request,
        allocated: Option<Allocated>,
    ) -> Result<FoundBlock<D>, Error> {
        self.shared.origin.check()?;
        // A block that was found already has its stack.
        let _gathered = if allocated.is_none() { self.shared.history.gather(Level::State) } else { None };
        let label = request.label;
        let request = Request { label: Label::OWNED, ..request };
        let mut found = match allocated {
            Some(allocated) => FoundBlock::of(heap, allocated),
            None if heap.state.lock().routed => self.find_by_route(heap, request)?,
            None => self.find_in_pool(heap, request)?,
        };
        self.park_surplus();
        pass_guards(&mut found, &heap.stream_state)?;
        // Nothing can fail any more, so the address may become known.
        if label.is_raw() {
            found.heap.make_raw(found.allocated.id, label);
        }
        Ok(found)
    }

    /// Finds a block in the pool that the request is routed to, or else in the heap's own pool.
    fn find_by_route(&self, heap: &Arc<Heap<D>>, request: Request) -> Result<FoundBlock<D>, Error> {
        let stream_state = &heap.stream_state;
        let routed_pool = self.routes.pool_for(stream_state.handle, || stream_state.capture())?;
        let heap = routed_pool.as_ref().map_or(Ok(heap), |pool| self.heap_of_stream_state(pool, stream_state))?;
        match heap.allocate_after_events(request)? {
            Some(allocated) => Ok(FoundBlock::of(heap, allocated)),
            None => self.find_in_pool(heap, request),
        }
    }

    /// Returns whether a request to a heap is routed to a pool whose memory graphs may use.
    #[cold]
    pub(super) fn serves_graphs(&self, heap: &Heap<D>) -> bool {
        let stream_state = &heap.stream_state;
        let by_route = || self.routes.pool_for(stream_state.handle, || stream_state.capture());
        match heap.pool() {
            Some(pool) => pool.keeps(),
            // If the driver query fails, the search for a block returns that error.
            None => by_route().map_or(true, |routed_pool| routed_pool.is_some_and(|pool| pool.keeps())),
        }
    }

    fn find_in_pool(&self, heap: &Arc<Heap<D>>, request: Request) -> Result<FoundBlock<D>, Error> {
        Self::check_awake(heap)?;
        if let Some(direct) = heap.direct.get().and_then(|number| self.heaps.get(*number))
            && let Some(allocated) = direct.allocate_after_events(request)?
        {
            return Ok(FoundBlock::of(direct, allocated));
        }
        heap.follow_setting();
        Retry::new(self, heap, Wanted { request, place: None }).run()
    }
}

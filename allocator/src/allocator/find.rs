//! Finds a block that the heap of the stream does not have: by a route, in its partner heap, by the retry steps.

use std::sync::Arc;

use cachette_hal::Device;

use crate::error::Error;
use crate::heap::{Allocated, Heap, Request};
use crate::observe::history::Level;
use crate::retry::{FoundBlock, Retry, pass_guards};
use crate::state::AllocatorState;

impl<D: Device> AllocatorState<D> {
    /// Finds a block where none fits or guards stand before it. A request in a forked child goes no further.
    #[cold]
    pub(crate) fn find_block_slow(
        &self,
        heap: &Arc<Heap<D>>,
        request: Request,
        allocated: Option<Allocated>,
    ) -> Result<FoundBlock<D>, Error> {
        self.shared.origin.check()?;
        let _gathered = self.shared.history.gather(Level::State);
        let mut found = match allocated {
            Some(allocated) => FoundBlock::of(heap, allocated),
            None if heap.state.lock().redirect.route => self.find_by_route(heap, request)?,
            None => self.find_in_pool(heap, request)?,
        };
        pass_guards(&mut found, &heap.stream_state)?;
        Ok(found)
    }

    /// Finds a block in the pool that a request is led to, if it is.
    fn find_by_route(&self, heap: &Arc<Heap<D>>, request: Request) -> Result<FoundBlock<D>, Error> {
        let stream_state = &heap.stream_state;
        let led = self.routes.pool_for(stream_state.handle(), || stream_state.capture())?;
        let heap = led.map_or(Ok(heap), |pool| self.heap_of_stream_state(&pool, stream_state))?;
        if !heap.is_retired()
            && let Some(allocated) = heap.allocate_after_events(request)?
        {
            return Ok(FoundBlock::of(heap, allocated));
        }
        self.find_in_pool(heap, request)
    }

    /// Whether a request to a heap is led to a pool whose memory graphs may use.
    #[cold]
    pub(super) fn serves_graphs(&self, heap: &Heap<D>) -> bool {
        let stream_state = &heap.stream_state;
        let by_route = || self.routes.pool_for(stream_state.handle(), || stream_state.capture());
        let led = heap.pool().map_or_else(by_route, |pool| Ok(Some(pool)));
        // If the driver fails to say, the search for a block fails with its error.
        led.map_or(true, |pool| pool.is_some_and(|pool| pool.keeps()))
    }

    /// Finds a block in the pool of the heap; in the heap's partner if the configuration has changed.
    fn find_in_pool(&self, heap: &Arc<Heap<D>>, request: Request) -> Result<FoundBlock<D>, Error> {
        Self::check_awake(heap)?;
        let retired = heap.is_retired();
        let heap = &if retired { self.partner_of(heap)? } else { Arc::clone(heap) };
        if retired && let Some(allocated) = heap.allocate(None, request) {
            return Ok(FoundBlock::of(heap, allocated));
        }
        // What is left in segments of the device's own may still serve; what is elastic may not once that is off.
        if heap.elastic.is_some()
            && let Some(partner) = heap.partner()
            && let Some(allocated) = partner.allocate_after_events(request)?
        {
            return Ok(FoundBlock::of(&partner, allocated));
        }
        Retry::new(self, heap, request).run()
    }
}

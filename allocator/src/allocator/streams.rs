//! The streams of an allocator, and the heap that serves each of them in the default pool.

use std::sync::Arc;

use cachette_hal::{Device, StreamRef};

use super::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::{Error, NO_HEAP};
use crate::heap::Heap;
use crate::heap_policy::HeapPolicy;
use crate::stats::{Counted, Row};
use crate::stream::Stream;
use crate::stream_state::StreamState;
use crate::sync::thread;

/// How many dropped streams or active heaps the creation of a stream examines.
const EXAMINED: usize = 2;

impl<D: Device> Allocator<D> {
    /// Creates a stream of the device. It lives as long as any memory that was allocated on it.
    ///
    /// A stream that the program has dropped is returned instead, if it has neither work nor memory left.
    pub fn create_stream(&self) -> Result<Stream<D>, Error> {
        self.shared().origin.check()?;
        if let Some(stream) = self.inner.dropped_stream() {
            return Ok(stream);
        }
        self.inner.stream_of(StreamState::create(Arc::clone(self.shared()))?)
    }

    /// The device's default stream.
    pub fn default_stream(&self) -> Result<Stream<D>, Error> {
        self.inner.stream_of(StreamState::adopt(Arc::clone(self.shared()), StreamRef::DEFAULT))
    }

    /// Wraps a stream that the caller created and will destroy.
    ///
    /// # Safety
    ///
    /// 1. `stream` is a live stream of this allocator's device.
    /// 2. It stays so until this allocator and every allocation made on the stream are gone.
    pub unsafe fn adopt_stream(&self, stream: StreamRef) -> Result<Stream<D>, Error> {
        self.inner.stream_of(StreamState::adopt(Arc::clone(self.shared()), stream))
    }

    /// Returns whether memory was ever requested on a stream, or the stream adopted. Its owner must not destroy it then.
    #[must_use]
    pub fn has_stream(&self, stream: StreamRef) -> bool {
        self.inner.known_heap(stream).is_some()
    }
}

impl<D: Device> AllocatorState<D> {
    /// Returns the stream of a stream state, with its heap in the default pool.
    pub(super) fn stream_of(&self, stream_state: StreamState<D>) -> Result<Stream<D>, Error> {
        self.shared.origin.check()?;
        let stream = stream_state.handle;
        // Checked once: if the driver rejects the handle, every later wait for the stream would fail.
        if self.streams.get(stream.raw()).is_none() && stream_state.is_unknown() {
            return Err(Error::UnknownStream { stream });
        }
        let make = || {
            let _turn = self.config_turn.lock();
            let heap = self.add_heap(&Arc::new(stream_state), self.shared.is_elastic(), Some(stream))?;
            self.routes.tell(|routed| heap.set_routed(routed));
            Some(heap.number)
        };
        let number = self.streams.get_or_add(stream.raw(), make);
        let heap = number.and_then(|number| self.heaps.get(number)).ok_or(NO_HEAP)?;
        Ok(Stream::of(heap))
    }

    /// Returns a dropped stream without work and memory in use. It examines few, and puts the others behind.
    fn dropped_stream(&self) -> Option<Stream<D>> {
        for _ in 0..EXAMINED {
            let number = self.shared.dropped_streams.lock().pop_front()?;
            let heap = self.heaps.get(number)?;
            // The end of this handle lists the stream again.
            let stream = Stream { stream_state: Arc::clone(&heap.stream_state), heap: Arc::clone(heap) };
            if stream.stream_state.add_handle() && self.is_unused(&stream) {
                return Some(stream);
            }
        }
        None
    }

    /// Returns whether a stream has no work and no memory in use, and no route leads its requests to a pool.
    fn is_unused(&self, stream: &Stream<D>) -> bool {
        let heaps = stream.stream_state.heaps.lock().clone();
        let mut heaps = heaps.into_iter().filter_map(|number| self.heaps.get(number));
        let counted = [Counted::Allocations, Counted::Pending];
        let is_free = |heap: &Arc<Heap<D>>| counted.iter().all(|counted| heap.counters.now(Row::All, *counted) == 0);
        let _relaxed = self.shared.relax_capture();
        heaps.all(is_free) && !self.routes.names(stream.handle()) && matches!(stream.heap.is_idle(), Ok(true))
    }

    /// Creates a heap, with `config_turn` held. Returns `None` if there are more than any driver has streams.
    pub(crate) fn add_heap(
        &self,
        stream_state: &Arc<StreamState<D>>,
        elastic: bool,
        listed: Option<StreamRef>,
    ) -> Option<&Arc<Heap<D>>> {
        let policy = HeapPolicy::of(&self.shared.settings.config());
        let heap = self.heaps.add(|number| Heap::new(Arc::clone(stream_state), &policy, number, elastic, listed))?;
        self.park_surplus();
        Some(heap)
    }

    /// Parks some heaps if there are many. The caller holds no lock of a heap.
    pub(super) fn park_surplus(&self) {
        for _ in 0..EXAMINED {
            let Some(heap) = self.shared.peaks.surplus().and_then(|number| self.heaps.get(number)) else { return };
            heap.park();
        }
    }

    /// Returns the heap of a raw stream. Creates it if there is none yet.
    pub(crate) fn heap_of_raw(&self, stream: StreamRef) -> Result<&Arc<Heap<D>>, Error> {
        if let Some(heap) = self.known_heap(stream) {
            return Ok(heap);
        }
        self.stream_of(StreamState::adopt(Arc::clone(&self.shared), stream))?;
        Ok(self.known_heap(stream).ok_or(NO_HEAP)?)
    }

    #[inline(always)]
    pub(crate) fn known_heap(&self, stream: StreamRef) -> Option<&Arc<Heap<D>>> {
        self.heaps.get(self.streams.get(stream.raw())?)
    }

    /// Does the same without a lookup, if this thread last asked the heap for raw memory.
    #[inline(always)]
    pub(crate) fn last_heap(&self, stream: StreamRef) -> Option<&Arc<Heap<D>>> {
        self.heaps.get(thread::last_heap()).filter(|heap| heap.listed == Some(stream))
    }

    /// Returns the heap with direct segments beside an elastic one of the default pool. Creates it if there is none yet.
    pub(crate) fn direct_heap(&self, heap: &Heap<D>) -> Result<&Arc<Heap<D>>, Error> {
        let make = || self.add_heap(&heap.stream_state, false, None).map(|made| made.number);
        let _turn = self.config_turn.lock();
        let number = heap.direct.get().copied().or_else(make).ok_or(NO_HEAP)?;
        Ok(self.heaps.get(*heap.direct.get_or_init(|| number)).ok_or(NO_HEAP)?)
    }
}

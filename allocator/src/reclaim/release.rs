//! Releases a part of the idle memory, as much as others ask for, or a call past the cache lacks.

use std::cmp::Reverse;
use std::sync::Arc;

use cachette_hal::{self as hal, Device};

use crate::allocator::allocator_state::AllocatorState;
use crate::error::sum_all;
use crate::heap::Heap;

impl<D: Device> AllocatorState<D> {
    /// The heaps with memory that may be released for others.
    pub(crate) fn givers(&self) -> Vec<Arc<Heap<D>>> {
        self.heaps.iter().filter(|heap| heap.has_memory() && heap.may_release()).cloned().collect()
    }

    /// Releases idle segments and chunks of `bytes`, or all if there is less. Returns the bytes.
    ///
    /// Streams without work come first, since a busy one must be waited for.
    pub(crate) fn release_for_others(&self, bytes: u64) -> u64 {
        let mut givers = self.givers();
        for heap in &givers {
            // The heap itself reports a failure to its users.
            let _ = heap.process_events();
        }
        givers.sort_by_cached_key(|heap| Reverse(heap.is_idle().unwrap_or(false)));
        let mut released = 0;
        for heap in givers {
            let mut left = bytes.saturating_sub(released);
            if left == 0 {
                break;
            }
            let wanted = |_, bytes| {
                let wanted = left > 0;
                left = left.saturating_sub(bytes);
                wanted
            };
            released += heap.release_wanted(wanted).unwrap_or(0);
        }
        let driver_pool = self.shared.settings.is_driver_pool() && released < bytes;
        if driver_pool {
            let _ = self.trim_driver_pool(&self.heaps.all());
        }
        released
    }
}

impl<D: Device> Heap<D> {
    /// The segments or chunks that can be released now: a number that identifies each in this heap, and its bytes.
    pub(super) fn idle_memory(&self) -> Vec<(u64, u64)> {
        let mut state = self.state.lock();
        if state.asleep || !self.permits_release() {
            return Vec::new();
        }
        let chunks = state.blocks.idle_chunks().into_iter().map(|(chunk, _)| (chunk.at, chunk.bytes));
        let mut idle: Vec<_> = chunks.collect();
        idle.extend(state.blocks.idle_segments().into_iter().map(|idle| (idle.order.into(), idle.bytes)));
        self.flush_stats(&mut state.blocks);
        idle
    }

    /// Releases the idle segments or chunks that are `wanted`, by number and bytes, after a wait for their uses. Returns
    /// their bytes.
    pub(super) fn release_wanted(&self, mut wanted: impl FnMut(u64, u64) -> bool) -> hal::Result<u64> {
        if !self.is_elastic() {
            let idle = self.idle_segments()?.into_iter().filter(|idle| wanted(idle.order.into(), idle.bytes));
            return sum_all(idle.map(|idle| self.release(idle)));
        }
        let mut bytes = 0;
        self.release_idle_chunks(|chunk| {
            let wanted = wanted(chunk.at, chunk.bytes);
            bytes += if wanted { chunk.bytes } else { 0 };
            wanted
        })?;
        self.wait_and_unmap()?;
        Ok(bytes)
    }
}

//! Registers the callbacks of a program: functions that the allocator calls.

use std::sync::Arc;

use cachette_hal::Device;

use super::Allocator;
use crate::observe::callbacks::TraceEvent;
use crate::observe::leak::LeakedAllocation;
use crate::out_of_memory::OutOfMemory;

impl<D: Device> Allocator<D> {
    /// Calls `observer` with the figures whenever a request ends in out-of-memory, before it returns.
    pub fn on_out_of_memory(&self, observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
        if !self.is_inherited() {
            self.shared().callbacks.on_oom(Arc::new(observer));
        }
    }

    /// Asks `reliever` to free memory when no free block fits; it says whether it freed any.
    ///
    /// It may drop allocations; it may not allocate.
    pub fn on_pressure(&self, reliever: impl Fn() -> bool + Send + Sync + 'static) {
        if !self.is_inherited() {
            self.shared().callbacks.on_pressure(Arc::new(reliever));
        }
    }

    /// Tells `tracker` of everything that happens to memory, on the thread where it happens.
    ///
    /// It must not call the allocator.
    pub fn track(&self, tracker: impl Fn(&TraceEvent) + Send + Sync + 'static) {
        if self.is_inherited() {
            return;
        }
        self.shared().callbacks.track(Arc::new(tracker));
        for heap in self.inner.heaps.all() {
            heap.refresh();
        }
    }

    /// Calls `observer` if raw memory is still allocated when the allocator is dropped. The program can no longer free
    /// that memory. Memory of an [`Allocation`](crate::Allocation) is not reported: it stays until that is dropped.
    pub fn on_leak(&self, observer: impl Fn(&[LeakedAllocation]) + Send + Sync + 'static) {
        if !self.is_inherited() {
            self.shared().callbacks.on_leak(Arc::new(observer));
        }
    }
}

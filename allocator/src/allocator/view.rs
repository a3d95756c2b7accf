//! Looking at an allocator: what it could serve, what is left in it, and whether it is sound.

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device};

use super::Allocator;
use crate::heaps::Heaps;
use crate::observe::leak::LeakedAllocation;
use crate::state::AllocatorState;

impl<D: Device> Allocator<D> {
    /// The largest block that is free, in bytes.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        let heaps = self.inner.heaps.all();
        heaps.iter().map(|heap| heap.largest_free()).max().unwrap_or(0)
    }

    /// The largest request that could be served now: from a free block, or from what the device has free.
    pub fn largest_available(&self) -> hal::Result<u64> {
        if self.is_inherited() {
            return Err(hal::Error::new(hal::ErrorKind::DeviceLost, "memory_info"));
        }
        let device = self.device().memory_info()?.free;
        Ok(self.largest_free().max(device))
    }

    /// Memory that is allocated by address, and not freed yet.
    #[must_use]
    pub fn raw_allocations(&self) -> Vec<LeakedAllocation> {
        if self.is_inherited() {
            return Vec::new();
        }
        self.inner.leaks()
    }

    /// Walks every structure and checks every invariant; the text says which one does not hold.
    ///
    /// It is for tests: it holds each heap for as long as the walk takes.
    pub fn check(&self) -> Result<(), String> {
        self.shared().origin.check().map_err(|e| e.to_string())?;
        let heaps = self.inner.heaps.all();
        heaps.iter().try_for_each(|heap| heap.check())?;
        let held: u64 = heaps.iter().map(|heap| heap.reserved()).sum();
        let reserved = self.shared().totals.reserved.load(Relaxed);
        if held != reserved {
            return Err(format!("{held} bytes are held and {reserved} are counted"));
        }
        Ok(())
    }
}

impl<D: Device> AllocatorState<D> {
    /// What is allocated by address, in the cache and past it.
    pub(crate) fn leaks(&self) -> Vec<LeakedAllocation> {
        let mut leaks = leaks_of(&self.heaps);
        leaks.extend(self.shared.uncached.raw());
        leaks.extend(self.pinned.raw());
        leaks
    }
}

/// Everything that is allocated by address, stream by stream.
fn leaks_of<D: Device>(heaps: &Heaps<D>) -> Vec<LeakedAllocation> {
    let heaps = heaps.all();
    heaps
        .iter()
        .flat_map(|heap| {
            let stream = heap.stream_state().handle();
            heap.raw_blocks().into_iter().map(move |(address, requested)| LeakedAllocation {
                address,
                requested,
                stream,
            })
        })
        .collect()
}

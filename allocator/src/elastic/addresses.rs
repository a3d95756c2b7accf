//! The address ranges of elastic heaps.

use std::mem;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind};

use crate::elastic;
use crate::heap::Heap;

impl<D: Device> Heap<D> {
    /// Reserves another address range for at least `bytes`. Returns `false` if no addresses are left, or if the device
    /// has too little memory to fill the range. Drivers refuse such a range with different errors.
    pub(crate) fn reserve_addresses(&self, bytes: u64) -> hal::Result<bool> {
        if bytes > self.shared.device.info().total_memory {
            return Ok(false);
        }
        let memory = self.shared.device.virtual_memory()?;
        let (least, mut wish) = self.shared.range_sizes(memory, bytes);
        let start = loop {
            match self.shared.chunks.reserve_outside_excluded(memory, wish) {
                Ok(start) => break start,
                Err(error) if error.kind() != ErrorKind::OutOfMemory => return Err(error),
                Err(_) if wish == least => return Ok(false),
                Err(_) => wish = least.max((wish / 2).next_multiple_of(elastic::page(memory))),
            }
        };
        let mut state = self.state.lock();
        let Some(id) = state.blocks.add_addresses(start.address(), wish) else {
            drop(state);
            // SAFETY: 1. the range was just reserved, and no other code has its address.
            unsafe { memory.release(start, wish) }?;
            return Ok(false);
        };
        let order = self.shared.totals.segments.fetch_add(1, Relaxed);
        state.blocks.set_order(id, order);
        drop(state);
        self.note_range(start, wish);
        Ok(true)
    }

    pub(crate) fn note_range(&self, start: DevicePtr, bytes: u64) {
        if let Some(elastic) = &self.elastic {
            elastic.ranges.lock().push((start, bytes));
        }
    }

    /// Releases the closed address ranges without memory. Otherwise every failed map would cost addresses for good, and on
    /// some devices memory. The next call retries every failure.
    pub(crate) fn release_closed_addresses(&self) {
        let closed = self.state.lock().blocks.remove_closed();
        let (Some(elastic), Ok(memory)) = (&self.elastic, self.shared.device.virtual_memory()) else { return };
        let is_closed = |(start, bytes): &mut (DevicePtr, u64)| closed.contains(&(start.address(), *bytes));
        let mut unused = mem::take(&mut *elastic.unused_ranges.lock());
        unused.extend(elastic.ranges.lock().extract_if(.., is_closed));
        for (start, bytes) in unused {
            // SAFETY: 1. this heap reserved the range, and no block of the heap lies in it any more.
            if unsafe { memory.release(start, bytes) }.is_ok() {
                self.shared.chunks.ranges.fetch_sub(1, Relaxed);
            } else {
                elastic.unused_ranges.lock().push((start, bytes));
            }
        }
    }

    /// Releases the address ranges, unless the driver refused to unmap something in them.
    pub(crate) fn release_addresses(&self) {
        self.release_closed_addresses();
        let Some(elastic) = &self.elastic else { return };
        // The chunks of a sleeping heap are not mapped.
        let is_mapped = !self.is_asleep() && !self.chunks().is_empty();
        if is_mapped || !elastic.pending_unmaps.lock().is_empty() {
            return;
        }
        let Ok(memory) = self.shared.device.virtual_memory() else { return };
        for (start, bytes) in mem::take(&mut *elastic.ranges.lock()) {
            // SAFETY: 1. this heap reserved the range, nothing is mapped in it, and the heap is being dropped. A
            // destructor cannot report a failure.
            let _ = unsafe { memory.release(start, bytes) };
        }
    }
}

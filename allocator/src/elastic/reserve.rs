//! Reserving the address ranges of an elastic heap.

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind};

use crate::elastic;
use crate::elastic::chunk_table::memory_of;
use crate::heap::Heap;

impl<D: Device> Heap<D> {
    /// Reserves another address range for at least `bytes`. Returns `false` if no addresses are left, or if the device
    /// has too little memory to fill the range. Drivers refuse such a range with different errors.
    pub(crate) fn reserve_addresses(&self, bytes: u64) -> hal::Result<bool> {
        if bytes > self.shared.device.info().total_memory {
            return Ok(false);
        }
        let memory = memory_of(&self.shared.device)?;
        let (least, mut wish) = self.shared.range_sizes(memory, bytes);
        let start = loop {
            match self.shared.chunks.reserve_unwanted(memory, wish) {
                Ok(start) => break start,
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    if wish == least {
                        return Ok(false);
                    }
                    wish = least.max((wish / 2).next_multiple_of(elastic::page(memory)));
                }
                Err(error) => return Err(error),
            }
        };
        let added = self.add_addresses(start, wish);
        if !added {
            // SAFETY: 1. the range was just reserved, and no other code has its address.
            unsafe { memory.release(start, wish) }?;
            return Ok(false);
        }
        self.note_range(start, wish);
        Ok(true)
    }

    /// Adds an address range to the heap's blocks. Returns `false` if the tables are full.
    fn add_addresses(&self, start: DevicePtr, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let Some(id) = state.blocks.add_addresses(start.address(), bytes) else { return false };
        let order = self.shared.totals.segments.fetch_add(1, Relaxed);
        state.blocks.set_order(id, order);
        true
    }
}

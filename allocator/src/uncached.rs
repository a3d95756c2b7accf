//! Memory that bypasses the cache: each request is a driver call, so that debugging tools see it.

use std::collections::HashMap;

use cachette_hal::{self as hal, Device, DevicePtr, StreamRef};

use crate::error::sum_all;
use crate::observe::callbacks::LeakedAllocation;
use crate::observe::probes;
use crate::sync::Mutex;

/// All memory of one allocator that bypasses the cache, by address.
#[derive(Debug, Default)]
pub(crate) struct UncachedTable(Mutex<HashMap<u64, Record>>);

#[derive(Clone, Copy, Debug)]
struct Record {
    ptr: DevicePtr,
    bytes: u64,
    stream: StreamRef,
    held: HeldBy,
}

/// What keeps the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HeldBy {
    Owner,
    /// A caller that knows its address.
    Address,
    /// Nothing: it was freed, and the driver failed. They go in the order of these numbers.
    Driver(u64),
}

impl UncachedTable {
    pub(crate) fn allocate<D: Device>(
        &self,
        device: &D,
        bytes: u64,
        stream: StreamRef,
        held: HeldBy,
    ) -> hal::Result<u64> {
        let ptr = device.allocate(bytes)?;
        self.0.lock().insert(ptr.address(), Record { ptr, bytes, stream, held });
        probes::malloc(device, ptr.address(), bytes, stream);
        Ok(ptr.address())
    }

    /// Takes the memory from its owner: the caller frees it by its address.
    pub(crate) fn make_raw(&self, address: u64) {
        if let Some(record) = self.0.lock().get_mut(&address) {
            record.held = HeldBy::Address;
        }
    }

    /// The size of the memory that begins at `address`, if it is such.
    pub(crate) fn bytes_at(&self, address: u64) -> Option<u64> {
        self.0.lock().get(&address).map(|record| record.bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().values().map(|record| record.bytes).sum()
    }

    pub(crate) fn raw(&self) -> Vec<LeakedAllocation> {
        let records = self.0.lock();
        let raw = records.iter().filter(|(_, record)| record.held == HeldBy::Address);
        raw.map(|(&address, &Record { bytes: requested, stream, .. })| LeakedAllocation { address, requested, stream })
            .collect()
    }

    /// Frees memory that is held like this; `None` if there is none. If the driver fails, it counts as freed and goes
    /// later.
    pub(crate) fn free<D: Device>(&self, device: &D, address: u64, held: HeldBy) -> Option<hal::Result<()>> {
        let record = {
            // In one turn of the lock, so that no two threads free one memory.
            let mut records = self.0.lock();
            records.get(&address).filter(|record| record.held == held)?;
            records.remove(&address)?
        };
        probes::free(|| address);
        Some(self.end(device, record))
    }

    /// Waits for the device and frees memory that has left the table; a failure puts it back, to be freed later.
    fn end<D: Device>(&self, device: &D, mut record: Record) -> hal::Result<()> {
        let idle = device.synchronize_device();
        // SAFETY: 1. the memory came from this device and has left the table. 2. The device is idle.
        let freed = idle.and_then(|()| unsafe { device.free(record.ptr) });
        if freed.is_err() {
            let mut records = self.0.lock();
            let numbers = records.values().filter_map(|known| match known.held {
                HeldBy::Driver(number) => Some(number + 1),
                _ => None,
            });
            record.held = HeldBy::Driver(numbers.max().unwrap_or(0));
            records.insert(record.ptr.address(), record);
        }
        freed
    }

    /// Frees what was freed before, when the driver failed; the bytes that came free.
    pub(crate) fn free_again<D: Device>(&self, device: &D) -> hal::Result<u64> {
        let failed = |_: &u64, record: &mut Record| matches!(record.held, HeldBy::Driver(_));
        let mut last_freed: Vec<Record> = self.0.lock().extract_if(failed).map(|(_, record)| record).collect();
        last_freed.sort_unstable_by_key(|record| record.held);
        sum_all(last_freed.into_iter().map(|record| self.end(device, record).map(|()| record.bytes)))
    }
}

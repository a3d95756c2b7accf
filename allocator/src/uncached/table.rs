//! The table of all memory that bypasses the cache.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cachette_hal::{self as hal, Device, DevicePtr, StreamRef};

use crate::error::sum_all;
use crate::observe::leak::LeakedAllocation;
use crate::observe::probes;

/// All memory that bypasses the cache.
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
enum HeldBy {
    /// An `Uncached`.
    Owner,
    /// A caller that knows its address.
    Address,
    /// Nothing: it was freed, and the driver failed. They go in the order of these numbers.
    Driver(u64),
}

impl UncachedTable {
    /// Adds memory that has an owner.
    pub(super) fn add(&self, ptr: DevicePtr, bytes: u64, stream: StreamRef) {
        self.lock().insert(ptr.address(), Record { ptr, bytes, stream, held: HeldBy::Owner });
    }

    /// Takes the owner away.
    pub(super) fn make_raw(&self, ptr: DevicePtr) {
        if let Some(record) = self.lock().get_mut(&ptr.address()) {
            record.held = HeldBy::Address;
        }
    }

    /// Whether such memory begins at `address`.
    pub(crate) fn knows(&self, address: u64) -> bool {
        self.lock().contains_key(&address)
    }

    /// The size of the memory that begins at `address`, if it is such.
    pub(crate) fn bytes_at(&self, address: u64) -> Option<u64> {
        self.lock().get(&address).map(|record| record.bytes)
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().values().map(|record| record.bytes).sum()
    }

    /// Memory that is known by its address alone.
    pub(crate) fn raw(&self) -> Vec<LeakedAllocation> {
        let raw = |record: &&Record| record.held == HeldBy::Address;
        self.lock().values().filter(raw).map(Record::leak).collect()
    }

    /// Frees the memory that begins at `address` and is known by that alone; `None` if there is none. If the driver
    /// fails, it counts as freed and goes later.
    pub(crate) fn free_raw<D: Device>(&self, device: &D, address: u64) -> Option<hal::Result<()>> {
        let record = self.remove(address, |held| held == HeldBy::Address)?;
        probes::free(|| address);
        Some(self.end(device, record))
    }

    /// Frees the memory that begins at `address`.
    pub(super) fn free<D: Device>(&self, device: &D, address: u64) -> hal::Result<()> {
        let record = self.remove(address, |_| true);
        record.map_or(Ok(()), |record| self.end(device, record))
    }

    /// Takes a record out of the table, in the turn of the lock that looks at it: no two threads free one memory.
    fn remove(&self, address: u64, which: impl Fn(HeldBy) -> bool) -> Option<Record> {
        let mut records = self.lock();
        records.get(&address).filter(|record| which(record.held))?;
        records.remove(&address)
    }

    /// Waits for the device and frees memory that has left the table; a failure puts it back, to be freed later.
    fn end<D: Device>(&self, device: &D, mut record: Record) -> hal::Result<()> {
        let idle = device.synchronize_device();
        // SAFETY: 1. the memory came from this device and has left the table. 2. The device is idle.
        let freed = idle.and_then(|()| unsafe { device.free(record.ptr) });
        if freed.is_err() {
            let mut records = self.lock();
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
        let mut last_freed: Vec<Record> = {
            let mut records = self.lock();
            let failed = records.extract_if(|_, record| matches!(record.held, HeldBy::Driver(_)));
            failed.map(|(_, record)| record).collect()
        };
        last_freed.sort_unstable_by_key(|record| record.held);
        let free = |record: Record| self.end(device, record).map(|()| record.bytes);
        sum_all(last_freed.into_iter().map(free))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    const fn leak(&self) -> LeakedAllocation {
        LeakedAllocation { address: self.ptr.address(), requested: self.bytes, stream: self.stream }
    }
}

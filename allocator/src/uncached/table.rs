//! The table of all memory that bypasses the cache.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, Device, DevicePtr, StreamRef};

use crate::error::sum_all;
use crate::observe::callbacks::LeakedAllocation;
use crate::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct UncachedTable(pub(super) Mutex<HashMap<u64, Record>>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) ptr: DevicePtr,
    pub(super) bytes: u64,
    pub(super) stream: StreamRef,
    pub(super) held: HeldBy,
}

impl Record {
    const fn is_freed(&self) -> bool {
        matches!(self.held, HeldBy::Driver(_))
    }
}

/// The owner of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HeldBy {
    Owner,
    /// A caller that has its address.
    Address,
    /// None: it was freed, but the driver failed. A retry frees memory in the order of these numbers.
    Driver(u64),
}

impl UncachedTable {
    /// Returns the size of the uncached memory in use that begins at `address`, if any.
    pub(crate) fn bytes_at(&self, address: u64) -> Option<u64> {
        self.0.lock().get(&address).filter(|record| !record.is_freed()).map(|record| record.bytes)
    }

    /// Returns whether uncached memory that begins at `address` was freed, but the driver failed.
    pub(crate) fn is_freed(&self, address: u64) -> bool {
        self.0.lock().get(&address).is_some_and(Record::is_freed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().values().map(|record| record.bytes).sum()
    }

    pub(crate) fn raw(&self) -> Vec<LeakedAllocation> {
        let records = self.0.lock();
        let raw = records.values().filter(|record| record.held == HeldBy::Address);
        raw.map(|&Record { ptr, bytes, stream, .. }| LeakedAllocation {
            address: ptr.address(),
            requested: bytes,
            stream,
        })
        .collect()
    }

    /// Frees raw memory at `address`. Returns `None` if there is none. If the driver fails, a later call frees it.
    pub(crate) fn free_raw<D: Device>(&self, device: &D, address: u64) -> Option<hal::Result<()>> {
        let record = self.remove(address, |held| held == HeldBy::Address)?;
        Some(self.end(device, record))
    }

    pub(super) fn free<D: Device>(&self, device: &D, address: u64) -> hal::Result<()> {
        let record = self.remove(address, |_| true);
        record.map_or(Ok(()), |record| self.end(device, record))
    }

    /// Removes a record from the table, under one lock with the lookup, so that no two threads free the same memory.
    fn remove(&self, address: u64, which: impl Fn(HeldBy) -> bool) -> Option<Record> {
        let mut records = self.0.lock();
        records.get(&address).filter(|record| which(record.held))?;
        records.remove(&address)
    }

    /// Waits for the device and frees memory that has left the table. A failure puts it back, to be freed later.
    fn end<D: Device>(&self, device: &D, mut record: Record) -> hal::Result<()> {
        // A stream may be captured, which forbids both calls.
        let _relaxed = RelaxedCapture::enter(device).ok();
        let idle = device.synchronize_device();
        // SAFETY: 1. the memory came from this device and has left the table. 2. The device is idle.
        let freed = idle.and_then(|()| unsafe { device.free(record.ptr) });
        if freed.is_err() {
            /// Relaxed: a later failure of one thread has a higher number.
            static NEXT: AtomicU64 = AtomicU64::new(0);
            record.held = HeldBy::Driver(NEXT.fetch_add(1, Relaxed));
            self.0.lock().insert(record.ptr.address(), record);
        }
        freed
    }

    /// Retries the frees that the driver failed before. Returns the bytes that became free.
    pub(crate) fn free_again<D: Device>(&self, device: &D) -> hal::Result<u64> {
        let failed = |_: &u64, record: &mut Record| record.is_freed();
        let mut records: Vec<Record> = self.0.lock().extract_if(failed).map(|(_, record)| record).collect();
        records.sort_unstable_by_key(|record| record.held);
        sum_all(records.into_iter().map(|record| self.end(device, record).map(|()| record.bytes)))
    }
}

//! Memory that bypasses the cache: each request is a driver call, so that debugging tools see it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, Device, DevicePtr};

use crate::device_state::DeviceState;
use crate::error::sum_all;
use crate::sync::Mutex;

pub(crate) struct Uncached<D: Device> {
    shared: Arc<DeviceState<D>>,
    /// `None` once the memory is raw, or freed.
    ptr: Option<DevicePtr>,
}

impl<D: Device> Uncached<D> {
    pub(crate) fn allocate(shared: &Arc<DeviceState<D>>, bytes: u64) -> hal::Result<Self> {
        // A stream may be captured, which forbids the call.
        let ptr = {
            let _relaxed = shared.relax_capture();
            shared.device.allocate(bytes)?
        };
        let record = Record { ptr, bytes, held: HeldBy::Owner, users: Vec::new() };
        shared.uncached.0.lock().insert(ptr.address(), record);
        Ok(Self { shared: Arc::clone(shared), ptr: Some(ptr) })
    }

    pub(crate) fn address(&self) -> u64 {
        self.ptr.map_or(0, DevicePtr::address)
    }

    /// Records that a stream of another device uses the memory. A free waits for all streams of this device anyway.
    pub(crate) fn record_use(&self, user: &Arc<DeviceState<D>>) {
        let (own, other) = (self.shared.device.info(), user.device.info());
        if (own.vendor, own.ordinal) != (other.vendor, other.ordinal)
            && let Some(record) = self.shared.uncached.0.lock().get_mut(&self.address())
            && !record.users.iter().any(|known| Arc::ptr_eq(known, user))
        {
            record.users.push(Arc::clone(user));
        }
    }

    /// Gives up the ownership and returns the address, by which the caller frees the memory.
    pub(crate) fn make_raw(mut self) -> u64 {
        let address = self.address();
        if let Some(ptr) = self.ptr.take()
            && let Some(record) = self.shared.uncached.0.lock().get_mut(&ptr.address())
        {
            record.held = HeldBy::Address;
        }
        address
    }
}

impl<D: Device> Drop for Uncached<D> {
    fn drop(&mut self) {
        if self.shared.origin.is_inherited() {
            self.shared.origin.keep(&self.shared);
            return;
        }
        if let Some(ptr) = self.ptr.take() {
            // A destructor cannot return a failure. The next call that empties the cache then frees the memory.
            let _ = self.shared.uncached.free(&self.shared.device, ptr.address(), HeldBy::Owner);
        }
    }
}

/// All memory of a device that bypasses the cache, by address.
pub(crate) struct UncachedTable<D: Device>(pub(crate) Mutex<HashMap<u64, Record<D>>>);

pub(crate) struct Record<D: Device> {
    ptr: DevicePtr,
    bytes: u64,
    held: HeldBy,
    /// Other devices with streams that use the memory.
    users: Vec<Arc<DeviceState<D>>>,
}

impl<D: Device> Record<D> {
    const fn is_freed(&self) -> bool {
        matches!(self.held, HeldBy::Driver(_))
    }

    fn wait(&self, device: &D) -> hal::Result<()> {
        device.synchronize_device()?;
        self.users.iter().try_for_each(|user| {
            let _relaxed = user.relax_capture();
            let idle = user.device.synchronize_device();
            idle.or_else(|error| if error.kind().stops_work() { Ok(()) } else { Err(error) })
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HeldBy {
    Owner,
    /// A caller that has its address.
    Address,
    /// None: it was freed, but the driver failed. A retry frees memory in the order of these numbers.
    Driver(u64),
}

impl<D: Device> UncachedTable<D> {
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

    /// Frees memory that is held so. Returns `None` if there is none. If the driver fails, a later call frees it.
    pub(crate) fn free(&self, device: &D, address: u64, held: HeldBy) -> Option<hal::Result<()>> {
        let record = {
            // One lock with the lookup, so that no two threads free the same memory.
            let mut records = self.0.lock();
            records.get(&address).filter(|record| record.held == held)?;
            records.remove(&address)?
        };
        Some(self.end(device, record))
    }

    /// Waits for the devices that use the memory, and frees it. It has left the table. A failure puts it back, to be freed later.
    fn end(&self, device: &D, mut record: Record<D>) -> hal::Result<()> {
        // A stream may be captured, which forbids both calls.
        let _relaxed = RelaxedCapture::enter(device).ok();
        let idle = record.wait(device);
        // SAFETY: 1. the memory came from this device and has left the table. 2. The devices are idle.
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
    pub(crate) fn free_again(&self, device: &D) -> hal::Result<u64> {
        let failed = |_: &u64, record: &mut Record<D>| record.is_freed();
        let mut records: Vec<Record<D>> = self.0.lock().extract_if(failed).map(|(_, record)| record).collect();
        records.sort_unstable_by_key(|record| record.held);
        sum_all(records.into_iter().map(|record| {
            let bytes = record.bytes;
            self.end(device, record).map(|()| bytes)
        }))
    }
}

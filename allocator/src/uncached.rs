//! Memory that bypasses the cache: each request is a driver call, so that debugging tools see it.

pub(crate) mod table;

use std::sync::Arc;

use cachette_hal::{self as hal, Device, DevicePtr, StreamRef};

use crate::device_state::DeviceState;
use table::{HeldBy, Record};

#[derive(Debug)]
pub(crate) struct Uncached<D: Device> {
    shared: Arc<DeviceState<D>>,
    /// `None` once the memory is raw, or freed.
    ptr: Option<DevicePtr>,
}

impl<D: Device> Uncached<D> {
    pub(crate) fn allocate(shared: &Arc<DeviceState<D>>, bytes: u64, stream: StreamRef) -> hal::Result<Self> {
        // A stream may be captured, which forbids the call.
        let ptr = {
            let _relaxed = shared.relax_capture();
            shared.device.allocate(bytes)?
        };
        shared
            .uncached
            .0
            .lock()
            .insert(ptr.address(), Record { ptr, bytes, stream, held: HeldBy::Owner, users: Vec::new() });
        Ok(Self { shared: Arc::clone(shared), ptr: Some(ptr) })
    }

    pub(crate) fn address(&self) -> u64 {
        self.ptr.map_or(0, DevicePtr::address)
    }

    /// Records that a stream of another device uses the memory. A free waits for all streams of this device anyway.
    pub(crate) fn record_use(&self, user: &Arc<DeviceState<D>>) {
        let (own, other) = (self.shared.device.info(), user.device.info());
        let is_own = (own.vendor, own.ordinal) == (other.vendor, other.ordinal);
        if is_own || self.shared.origin.is_inherited() {
            return;
        }
        if let Some(record) = self.shared.uncached.0.lock().get_mut(&self.address())
            && !record.users.iter().any(|known| Arc::ptr_eq(known, user))
        {
            record.users.push(Arc::clone(user));
        }
    }

    /// Gives up the ownership: the caller frees the memory by its address.
    pub(crate) fn make_raw(mut self) {
        if self.shared.origin.is_inherited() {
            return;
        }
        if let Some(ptr) = self.ptr.take()
            && let Some(record) = self.shared.uncached.0.lock().get_mut(&ptr.address())
        {
            record.held = HeldBy::Address;
        }
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
            let _ = self.shared.uncached.free(&self.shared.device, ptr.address());
        }
    }
}

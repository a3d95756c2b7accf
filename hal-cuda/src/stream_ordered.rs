//! The driver's stream-ordered pool.

use std::ptr;
use std::sync::Arc;

use cachette_hal::{DevicePtr, Reason, Result, StreamOrdered, StreamRef, sized_call};

use crate::context::Context;
use crate::device::device_ptr;
use crate::probe::Property;
use crate::status::check;
use crate::symbols::StreamOrderedCalls;
use crate::types::{handle, pointer, size};

/// The device's default pool, which other users of the device in the process also use.
#[derive(Debug)]
pub(crate) struct CudaStreamOrdered {
    context: Arc<Context>,
    calls: StreamOrderedCalls,
    pool: usize,
}

impl CudaStreamOrdered {
    /// Checks the requirements of the group, and finds the pool.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let calls = context.symbols().stream_ordered?;
        Property::POOLS.need(context.core(), context.device)?;
        let mut pool = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let status = unsafe { (calls.cuDeviceGetDefaultMemPool)(&raw mut pool, context.device) };
        check("cuDeviceGetDefaultMemPool", status)
            .map_err(|_| Reason::SelfTestFailed("cuDeviceGetDefaultMemPool gave no pool"))?;
        Ok(Self { context: Arc::clone(context), calls, pool: handle(pool) })
    }
}

impl StreamOrdered for CudaStreamOrdered {
    unsafe fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr> {
        let call = sized_call("cuMemAllocFromPoolAsync", bytes)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (pool, stream) = (pointer(self.pool), pointer(stream.raw()));
        let mut at = 0;
        let allocate = self.calls.cuMemAllocFromPoolAsync;
        // SAFETY: 1. is the caller's promise; the driver writes one address.
        check(call, unsafe { allocate(&raw mut at, size(bytes), pool, stream) })?;
        device_ptr(call, at)
    }

    unsafe fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (at, stream) = (ptr.address(), pointer(stream.raw()));
        // SAFETY: 1. and 2. are the caller's promises.
        check("cuMemFreeAsync", unsafe { (self.calls.cuMemFreeAsync)(at, stream) })
    }

    fn trim(&self, keep: u64) -> Result<()> {
        // SAFETY: a default pool lives as long as its device.
        self.context.call("cuMemPoolTrimTo", || unsafe { (self.calls.cuMemPoolTrimTo)(pointer(self.pool), size(keep)) })
    }
}

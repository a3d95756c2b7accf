//! One device: memory, streams and events.

use std::ptr;
use std::sync::Arc;

use cachette_hal::{
    Device, DeviceInfo, DevicePtr, Error, ErrorKind, Event, MemoryInfo, Ordinal, Progress, Reason, Result, Stream,
    StreamRef, group_accessors, probed_group, sized_call,
};
use cudarc::driver::sys::{CUdevice, CUevent_flags, CUstream_flags};

use crate::capture::CudaCapture;
use crate::context::{CAPTURES, Context};
use crate::facts::facts;
use crate::host_calls::CudaHostCalls;
use crate::host_memory::CudaHostMemory;
use crate::ipc::CudaIpc;
use crate::library::Driver;
use crate::peer_access::CudaPeerAccess;
use crate::status::{INVALID_CONTEXT, NOT_READY, check};
use crate::stream_ordered::CudaStreamOrdered;
use crate::symbols::CoreCalls;
use crate::transfer::CudaTransfer;
use crate::types::{Status, handle, pointer, size};
use crate::virtual_memory::CudaVirtualMemory;

/// An NVIDIA device; clones share the device.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    parts: Arc<Parts>,
}

/// The state of a device: its context, and each group of calls or the reason why it is absent.
#[derive(Debug)]
struct Parts {
    info: DeviceInfo,
    context: Arc<Context>,
    virtual_memory: Result<CudaVirtualMemory, Reason>,
    stream_ordered: Result<CudaStreamOrdered, Reason>,
    host_memory: Result<CudaHostMemory, Reason>,
    ipc: Result<CudaIpc, Reason>,
    capture: Result<CudaCapture, Reason>,
    peer_access: Result<CudaPeerAccess, Reason>,
    transfer: Result<CudaTransfer, Reason>,
    host_calls: Result<CudaHostCalls, Reason>,
}

impl CudaDevice {
    /// Opens the device at `ordinal`: retains its primary context, and probes its features.
    pub(crate) fn open(driver: Arc<Driver>, ordinal: Ordinal) -> Result<Self> {
        let device = find(&driver.symbols.core, ordinal)?;
        let context = Context::retain(driver, device)?;
        let entered = context.enter()?;
        let info = facts(&context, ordinal)?;
        let parts = Parts {
            info,
            virtual_memory: CudaVirtualMemory::probe(&context),
            stream_ordered: CudaStreamOrdered::probe(&context),
            host_memory: CudaHostMemory::probe(&context),
            ipc: CudaIpc::probe(&context),
            capture: CudaCapture::new(&context, context.symbols().capture),
            peer_access: CudaPeerAccess::probe(&context),
            transfer: CudaTransfer::new(&context, context.symbols().transfer),
            host_calls: CudaHostCalls::new(&context, context.symbols().host_calls),
            context: Arc::clone(&context),
        };
        drop(entered);
        Ok(Self { parts: Arc::new(parts) })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.parts.context
    }

    fn core(&self) -> &CoreCalls {
        self.context().core()
    }

    /// Makes a call with the context current.
    fn call(&self, call: &'static str, make: impl FnOnce(&CoreCalls) -> Status) -> Result<()> {
        self.context().call(call, || make(self.core()))
    }
}

/// Free and total memory of the context that is current.
pub(crate) fn current_memory(core: &CoreCalls) -> Result<MemoryInfo> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the driver writes two sizes.
    let status = unsafe { (core.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
    check("cuMemGetInfo_v2", status)?;
    Ok(MemoryInfo { free: free as u64, total: total as u64 })
}

/// The driver's number for the device at `ordinal`.
pub(crate) fn find(core: &CoreCalls, ordinal: Ordinal) -> Result<CUdevice> {
    let call = "cuDeviceGet";
    let none = Error::new(ErrorKind::NoSuchDevice, call);
    let position = i32::try_from(ordinal.0).map_err(|_| none)?;
    let mut device = 0;
    // SAFETY: the driver writes one number.
    let status = unsafe { (core.cuDeviceGet)(&raw mut device, position) };
    check(call, status)?;
    Ok(device)
}

/// An address from a call that succeeded; the driver never returns null then.
pub(crate) fn device_ptr(call: &'static str, address: u64) -> Result<DevicePtr> {
    DevicePtr::new(address).ok_or(Error::new(ErrorKind::Other, call))
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.parts.info
    }

    fn while_current(&self, act: &mut dyn FnMut()) -> Result<()> {
        let _entered = self.context().enter()?;
        act();
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let _entered = self.context().enter()?;
        current_memory(self.core())
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
        let call = sized_call("cuMemAlloc_v2", bytes)?;
        let mut at = 0;
        // SAFETY: the driver writes one address.
        self.call(call, |core| unsafe { (core.cuMemAlloc_v2)(&raw mut at, size(bytes)) })?;
        device_ptr(call, at)
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.call("cuMemFree_v2", |core| unsafe { (core.cuMemFree_v2)(ptr.address()) })
    }

    fn create_stream(&self) -> Result<Stream> {
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut stream = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        self.call("cuStreamCreate", |core| unsafe { (core.cuStreamCreate)(&raw mut stream, flags) })?;
        Ok(Stream::from_raw(handle(stream)))
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context().enter_for(stream.borrow()) }?;
        // SAFETY: 1. is the caller's promise.
        check("cuStreamDestroy_v2", unsafe { (self.core().cuStreamDestroy_v2)(pointer(stream.raw())) })
    }

    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context().enter_for(stream) }?;
        // SAFETY: 1. is the caller's promise.
        check("cuStreamSynchronize", unsafe { (self.core().cuStreamSynchronize)(pointer(stream.raw())) })
    }

    fn synchronize_device(&self) -> Result<()> {
        // The call fails at once during a capture.
        let _locked = self.context().enter_locked()?;
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { (self.core().cuCtxSynchronize)() })
    }

    fn create_event(&self) -> Result<Event> {
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut event = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        self.call("cuEventCreate", |core| unsafe { (core.cuEventCreate)(&raw mut event, flags) })?;
        Ok(Event::from_raw(handle(event)))
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let _locked = self.context().enter_locked()?;
        // SAFETY: 1. is the caller's promise.
        check("cuEventDestroy_v2", unsafe { (self.core().cuEventDestroy_v2)(pointer(event.raw())) })
    }

    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context().enter_for(stream) }?;
        let (event, stream) = (pointer(event.raw()), pointer(stream.raw()));
        // SAFETY: 1. is the caller's promise.
        check("cuEventRecord", unsafe { (self.core().cuEventRecord)(event, stream) })
    }

    unsafe fn poll(&self, event: &Event) -> Result<Progress> {
        // SAFETY: 1. is the caller's promise.
        let query = || unsafe { (self.core().cuEventQuery)(pointer(event.raw())) };
        // The driver answers in any context or none, and switching the context costs more than the query.
        let mut status = if CAPTURES.is_open() { INVALID_CONTEXT } else { query() };
        if status == INVALID_CONTEXT {
            let _locked = self.context().enter_locked()?;
            status = query();
        }
        if status == NOT_READY {
            return Ok(Progress::Pending);
        }
        check("cuEventQuery", status)?;
        Ok(Progress::Done)
    }

    unsafe fn wait(&self, event: &Event) -> Result<()> {
        // An event of a capture fails here. Any other may be waited for without the lock.
        // SAFETY: 1. is the caller's promise.
        if CAPTURES.is_open() && unsafe { self.poll(event) }?.is_done() {
            return Ok(());
        }
        // SAFETY: 1. is the caller's promise.
        self.call("cuEventSynchronize", |core| unsafe { (core.cuEventSynchronize)(pointer(event.raw())) })
    }

    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
        // The event may be of a capture that the stream joins now.
        let _locked = self.context().enter_locked()?;
        let (stream, event) = (pointer(stream.raw()), pointer(event.raw()));
        // SAFETY: 1. is the caller's promise.
        check("cuStreamWaitEvent", unsafe { (self.core().cuStreamWaitEvent)(stream, event, 0) })
    }

    group_accessors!(probed_group);
}

//! One device: memory, streams and events.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cachette_hal::{
    Device, DeviceInfo, DevicePtr, Error, ErrorKind, Event, Feature, Guarded, MemoryInfo, Missing, Ordinal, Progress,
    Reason, Result, Stream, StreamOrdered, StreamRef, group_accessors, probed_group, sized_call,
};

use crate::capture::{HipCapture, check_live, is_captured};
use crate::context::{Context, PER_THREAD_STREAM, handle};
use crate::facts::facts;
use crate::host_calls::HipHostCalls;
use crate::host_memory::HipHostMemory;
use crate::ipc::HipIpc;
use crate::library::Driver;
use crate::peer_access::HipPeerAccess;
use crate::status::NOT_READY;
use crate::stream_ordered::HipStreamOrdered;
use crate::symbols::CoreCalls;
use crate::transfer::HipTransfer;
use crate::types::{EVENT_DISABLE_TIMING, EVENT_RELEASE_TO_SYSTEM, STREAM_NON_BLOCKING, Status};
use crate::virtual_memory::HipVirtualMemory;

/// The open devices. Drivers are never dropped, so an address identifies one.
static OPENED: Guarded<BTreeMap<(usize, Ordinal), HipDevice>> = Guarded::new(BTreeMap::new());

/// The first pause of a wait for an event; each later pause is twice as long.
const SHORTEST_PAUSE: Duration = Duration::from_micros(1);
/// The longest pause of a wait, so that it ends soon after its event.
const LONGEST_PAUSE: Duration = Duration::from_micros(256);

/// An AMD device; clones share the device.
#[derive(Clone, Debug)]
pub struct HipDevice {
    parts: Arc<Parts>,
}

/// The state of a device: its context, and each group of calls or the reason why it is absent.
#[derive(Debug)]
struct Parts {
    info: DeviceInfo,
    context: Arc<Context>,
    virtual_memory: Result<HipVirtualMemory, Reason>,
    stream_ordered: Result<HipStreamOrdered, Reason>,
    host_memory: Result<HipHostMemory, Reason>,
    ipc: Result<HipIpc, Reason>,
    capture: Result<HipCapture, Reason>,
    peer_access: Result<HipPeerAccess, Reason>,
    transfer: Result<HipTransfer, Reason>,
    host_calls: Result<HipHostCalls, Reason>,
}

impl HipDevice {
    /// Opens the device at `ordinal` and probes its features, once per process.
    pub(crate) fn open(driver: &Arc<Driver>, ordinal: Ordinal) -> Result<Self> {
        let device = find(driver, "hipGetDeviceCount", ordinal)?;
        let key = (Arc::as_ptr(driver).addr(), ordinal);
        if let Some(known) = OPENED.lock().get(&key) {
            return Ok(known.clone());
        }
        // Probing may take time, so the lock is not held. Two threads that probe at once find the same.
        let context = Context::new(Arc::clone(driver), device);
        let entered = context.enter()?;
        let info = facts(&context, ordinal)?;
        let architecture = info.architecture.as_deref();
        let parts = Parts {
            virtual_memory: HipVirtualMemory::probe(&context, architecture),
            stream_ordered: HipStreamOrdered::probe(&context, architecture),
            host_memory: HipHostMemory::new(&context, context.symbols().host_memory),
            ipc: HipIpc::probe(&context),
            capture: HipCapture::new(&context, context.symbols().capture),
            peer_access: HipPeerAccess::new(&context, context.symbols().peer_access),
            transfer: HipTransfer::new(&context, context.symbols().transfer),
            host_calls: HipHostCalls::probe(&context),
            context: Arc::clone(&context),
            info,
        };
        drop(entered);
        Ok(OPENED.lock().entry(key).or_insert(Self { parts: Arc::new(parts) }).clone())
    }

    fn context(&self) -> &Context {
        &self.parts.context
    }

    fn core(&self) -> &CoreCalls {
        self.context().core()
    }

    /// Makes a call with the device current.
    fn call(&self, call: &'static str, make: impl FnOnce(&CoreCalls) -> Status) -> Result<()> {
        self.context().call(call, || make(self.core()))
    }
}

/// Free and total memory of the device that is current.
pub(crate) fn current_memory(context: &Context) -> Result<MemoryInfo> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the driver writes two sizes.
    let status = unsafe { (context.core().hipMemGetInfo)(&raw mut free, &raw mut total) };
    context.check("hipMemGetInfo", status)?;
    Ok(MemoryInfo { free, total })
}

/// The driver's number for the device at `ordinal`.
pub(crate) fn find(driver: &Driver, call: &'static str, ordinal: Ordinal) -> Result<c_int> {
    let exists = ordinal.0 < driver.device_count()?;
    c_int::try_from(ordinal.0).ok().filter(|_| exists).ok_or(Error::new(ErrorKind::NoSuchDevice, call))
}

/// An address from a call that succeeded; null then means that there was no memory.
pub(crate) fn device_ptr(call: &'static str, address: u64) -> Result<DevicePtr> {
    DevicePtr::new(address).ok_or(Error::new(ErrorKind::OutOfMemory, call))
}

impl Device for HipDevice {
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
        current_memory(self.context())
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
        let call = sized_call("hipMalloc", bytes)?;
        let mut at = 0;
        // SAFETY: the driver writes one address.
        self.call(call, |core| unsafe { (core.hipMalloc)(&raw mut at, bytes) })?;
        device_ptr(call, at)
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.call("hipFree", |core| unsafe { (core.hipFree)(ptr.address()) })
    }

    fn create_stream(&self) -> Result<Stream> {
        let (call, flags) = ("hipStreamCreateWithFlags", STREAM_NON_BLOCKING);
        let mut stream = 0;
        // SAFETY: the driver writes one handle.
        self.call(call, |core| unsafe { (core.hipStreamCreateWithFlags)(&raw mut stream, flags) })?;
        self.context().driver.own.lock().insert(stream);
        Ok(Stream::from_raw(stream))
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context().enter_for(stream.borrow()) }?;
        let (driver, handle) = (&self.context().driver, stream.raw());
        // This comes before the call: another thread may get the handle for a new stream at once.
        let is_own = driver.own.lock().remove(&handle);
        let is_left = driver.left.lock().remove(&handle);
        // SAFETY: 1. is the caller's promise.
        let destroyed = self.context().check("hipStreamDestroy", unsafe { (self.core().hipStreamDestroy)(handle) });
        if destroyed.is_err() {
            is_own.then(|| driver.own.lock().insert(handle));
            is_left.then(|| driver.left.lock().insert(handle));
        }
        destroyed
    }

    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context().enter_for(stream) }?;
        // SAFETY: 1. is the caller's promise.
        self.context().check("hipStreamSynchronize", unsafe { (self.core().hipStreamSynchronize)(handle(stream)) })
    }

    fn synchronize_device(&self) -> Result<()> {
        let _locked = self.context().enter_locked()?;
        // SAFETY: the device is current.
        self.context().check("hipDeviceSynchronize", unsafe { (self.core().hipDeviceSynchronize)() })
    }

    fn create_event(&self) -> Result<Event> {
        // Without the second flag, the host and peers may not see the writes of the work before the event.
        let flags = EVENT_DISABLE_TIMING | EVENT_RELEASE_TO_SYSTEM;
        let mut event = 0;
        // SAFETY: the driver writes one handle.
        self.call("hipEventCreateWithFlags", |core| unsafe { (core.hipEventCreateWithFlags)(&raw mut event, flags) })?;
        Ok(Event::from_raw(event))
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let _locked = self.context().enter_locked()?;
        // This comes before the call: another thread may get the handle for a new event at once.
        self.context().driver.recorded.lock().remove(&event.raw());
        // SAFETY: 1. is the caller's promise.
        self.context().check("hipEventDestroy", unsafe { (self.core().hipEventDestroy)(event.raw()) })
    }

    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context().enter_for(stream) }?;
        let recorded = &self.context().driver.recorded;
        if handle(stream) > PER_THREAD_STREAM {
            recorded.lock().insert(event.raw(), handle(stream));
        } else {
            recorded.lock().remove(&event.raw());
        }
        // SAFETY: 1. is the caller's promise.
        self.context().check("hipEventRecord", unsafe { (self.core().hipEventRecord)(event.raw(), handle(stream)) })
    }

    /// Refused while the stream of the event is captured: the query could break the capture, even if the event was
    /// recorded before.
    unsafe fn poll(&self, event: &Event) -> Result<Progress> {
        let (_locked, call) = (self.context().enter_locked()?, "hipEventQuery");
        let recorded = self.context().driver.recorded.lock().get(&event.raw()).copied();
        if let Some(stream) = recorded
            // SAFETY: the event was recorded in the stream, so that it lives or was destroyed.
            && unsafe { is_captured(self.context(), StreamRef::from_raw(stream)) }
        {
            return Err(Error::new(ErrorKind::CaptureForbids, call));
        }
        // SAFETY: 1. is the caller's promise.
        let status = unsafe { (self.core().hipEventQuery)(event.raw()) };
        if status == NOT_READY {
            self.context().driver.clear_not_ready();
            return Ok(Progress::Pending);
        }
        self.context().check(call, status)?;
        Ok(Progress::Done)
    }

    /// Polls instead of calling `hipEventSynchronize`, which blocks queries of the event by other threads.
    unsafe fn wait(&self, event: &Event) -> Result<()> {
        let mut pause = SHORTEST_PAUSE;
        // SAFETY: 1. is the caller's promise.
        while !unsafe { self.poll(event) }?.is_done() {
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
        // The event may be of a capture that the stream joins now.
        let _locked = self.context().enter_locked()?;
        // SAFETY: 1. is the caller's promise.
        unsafe { check_live(self.context(), stream) }?;
        // SAFETY: 1. is the caller's promise.
        self.context()
            .check("hipStreamWaitEvent", unsafe { (self.core().hipStreamWaitEvent)(handle(stream), event.raw(), 0) })
    }

    /// The first use tests the pool.
    fn stream_ordered(&self) -> Result<&dyn StreamOrdered, Missing> {
        let tested = self.parts.stream_ordered.as_ref().map_err(|reason| *reason);
        let tested = tested.and_then(|pool| pool.tested(self).map(|()| pool as _));
        tested.map_err(|reason| Missing::new(Feature::StreamOrdered, reason))
    }

    group_accessors! { probed_group:
        virtual_memory VirtualMemory, host_memory HostMemory, ipc Ipc, capture Capture, peer_access PeerAccess,
        transfer Transfer, host_calls HostCalls,
    }
}

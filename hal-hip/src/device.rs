//! One device: memory, streams and events.

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use cachette_hal::{
    Capture, Device, DeviceInfo, DevicePtr, Error, ErrorKind, Event, Feature, Granularity, HostCalls, HostMemory, Ipc,
    MemoryInfo, Missing, PeerAccess, Progress, Reason, Result, Stream, StreamOrdered, StreamRef, Transfer,
    VirtualMemory,
};

use crate::context::Current;
use crate::facts::{self, HipFacts};
use crate::library::Driver;
use crate::status::NOT_READY;
use crate::symbols::Core;
use crate::types::{
    DEVICE_MALLOC_CONTIGUOUS, DEVICE_MALLOC_DEFAULT, DEVICE_MALLOC_FINE_GRAINED, DEVICE_MALLOC_SIGNAL,
    DEVICE_MALLOC_UNCACHED, EVENT_DISABLE_TIMING, EVENT_RELEASE_TO_SYSTEM, PoolHandle, STREAM_NON_BLOCKING, Status,
    StreamHandle,
};
use crate::{limits, probe};

/// HIP's handle for the default stream by another name; passed on, it crashes.
const LEGACY_STREAM: usize = 1;

/// How long a wait for an event sleeps before it asks again; each pause is twice the one before.
const SHORTEST_PAUSE: Duration = Duration::from_micros(1);
/// No pause of a wait is longer, so that it ends soon after its event.
const LONGEST_PAUSE: Duration = Duration::from_micros(256);

/// A kind of device memory; all of them are freed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocationKind {
    /// Cached, and visible to others only at the end of a kernel: what `allocate` gives.
    CoarseGrained,
    /// Visible to the host and to peers while a kernel runs.
    FineGrained,
    /// Not cached at all.
    Uncached,
    /// Physically contiguous.
    Contiguous,
    /// For signals between host and device; eight bytes.
    Signal,
}

impl AllocationKind {
    const fn flags(self) -> c_uint {
        match self {
            Self::CoarseGrained => DEVICE_MALLOC_DEFAULT,
            Self::FineGrained => DEVICE_MALLOC_FINE_GRAINED,
            Self::Uncached => DEVICE_MALLOC_UNCACHED,
            Self::Contiguous => DEVICE_MALLOC_CONTIGUOUS,
            Self::Signal => DEVICE_MALLOC_SIGNAL,
        }
    }
}

/// What is known of a device, asked once in a process.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) info: DeviceInfo,
    pub(crate) facts: HipFacts,
    pub(crate) device: c_int,
    /// Of virtual memory, or why there is none.
    pub(crate) granularity: Result<Granularity, Reason>,
    /// Whether the pool may be tested.
    pub(crate) pool: Result<(), Reason>,
    /// The driver's default pool of the device, once it was asked for.
    pub(crate) default_pool: OnceLock<PoolHandle>,
    /// How the test of the pool ended, once it was made.
    pub(crate) pool_test: OnceLock<Result<(), Reason>>,
}

impl Unit {
    /// Asks the driver.
    pub(crate) fn ask(driver: &Driver, device: c_int) -> Result<Self> {
        let _current = Current::enter(driver, device)?;
        let (info, facts) = facts::ask(driver, device)?;
        let granularity = probe::virtual_memory(driver, device, &facts);
        if granularity.is_ok() {
            limits::raise();
        }
        let pool = probe::stream_ordered(driver, device, &facts);
        Ok(Self { info, facts, device, granularity, pool, default_pool: OnceLock::new(), pool_test: OnceLock::new() })
    }
}

/// An AMD device; clones are the same device.
#[derive(Clone, Debug)]
pub struct HipDevice {
    pub(crate) driver: Arc<Driver>,
    pub(crate) unit: Arc<Unit>,
}

impl HipDevice {
    /// Facts that the contract has no field for; no driver call.
    #[must_use]
    pub fn facts(&self) -> &HipFacts {
        &self.unit.facts
    }

    /// Takes memory of a chosen kind; [`free`](Device::free) gives it back.
    ///
    /// [`ErrorKind::Unsupported`] where the library cannot.
    #[doc(alias = "hipExtMallocWithFlags")]
    pub fn allocate_kind(&self, bytes: u64, kind: AllocationKind) -> Result<DevicePtr> {
        let call = "hipExtMallocWithFlags";
        check_size(call, bytes)?;
        let function = self.driver.symbols.core.hipExtMallocWithFlags();
        let function = function.map_err(|_| Error::new(ErrorKind::Unsupported, call))?;
        let mut at = 0;
        // SAFETY: the out-parameter outlives the call.
        self.call(call, |_| unsafe { function(&raw mut at, bytes, kind.flags()) })?;
        address(call, at)
    }

    /// Makes a call with this device current.
    pub(crate) fn call(&self, call: &'static str, make: impl FnOnce(&Core) -> Status) -> Result<()> {
        let _current = self.current()?;
        let status = make(&self.driver.symbols.core);
        self.driver.check(call, status)
    }

    /// Makes a call of a group with this device current; without the group's functions it is unsupported.
    pub(crate) fn call_in<T>(
        &self,
        group: &Result<T, Reason>,
        call: &'static str,
        make: impl FnOnce(&T) -> Status,
    ) -> Result<()> {
        let group = group.as_ref().map_err(|_| Error::new(ErrorKind::Unsupported, call))?;
        let _current = self.current()?;
        let status = make(group);
        self.driver.check(call, status)
    }

    /// Makes this device the current one.
    pub(crate) fn current(&self) -> Result<Current<'_>> {
        Current::enter(&self.driver, self.unit.device)
    }

    /// The device itself, unless there is a reason that the feature is missing.
    fn with<T>(&self, feature: Feature, found: &Result<T, Reason>) -> Result<&Self, Missing> {
        match found {
            Ok(_) => Ok(self),
            Err(reason) => Err(Missing::new(feature, *reason)),
        }
    }
}

impl Device for HipDevice {
    fn info(&self) -> &DeviceInfo {
        &self.unit.info
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the out-parameters outlive the call.
        self.call("hipMemGetInfo", |hip| unsafe { (hip.hipMemGetInfo)(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free, total })
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
        // HIP answers a size of zero with success and null.
        check_size("hipMalloc", bytes)?;
        let mut at = 0;
        // SAFETY: the out-parameter outlives the call.
        self.call("hipMalloc", |hip| unsafe { (hip.hipMalloc)(&raw mut at, bytes) })?;
        address("hipMalloc", at)
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: 1 and 2. The caller's promises.
        self.call("hipFree", |hip| unsafe { (hip.hipFree)(ptr.address()) })
    }

    fn create_stream(&self) -> Result<Stream> {
        let mut stream = 0;
        // SAFETY: the out-parameter outlives the call.
        self.call("hipStreamCreateWithFlags", |hip| unsafe {
            (hip.hipStreamCreateWithFlags)(&raw mut stream, STREAM_NON_BLOCKING)
        })?;
        Ok(Stream::from_raw(stream))
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.call("hipStreamDestroy", |hip| unsafe { (hip.hipStreamDestroy)(stream.raw()) })?;
        self.driver.ends.forget(stream.raw());
        Ok(())
    }

    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.call("hipStreamSynchronize", |hip| unsafe { (hip.hipStreamSynchronize)(handle(stream)) })
    }

    fn synchronize_device(&self) -> Result<()> {
        // SAFETY: it takes nothing.
        self.call("hipDeviceSynchronize", |hip| unsafe { (hip.hipDeviceSynchronize)() })
    }

    fn create_event(&self) -> Result<Event> {
        // Without the second flag the host and peers need not see what the work before it wrote.
        let flags = EVENT_DISABLE_TIMING | EVENT_RELEASE_TO_SYSTEM;
        let mut event = 0;
        // SAFETY: the out-parameter outlives the call.
        self.call("hipEventCreateWithFlags", |hip| unsafe { (hip.hipEventCreateWithFlags)(&raw mut event, flags) })?;
        Ok(Event::from_raw(event))
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.call("hipEventDestroy", |hip| unsafe { (hip.hipEventDestroy)(event.raw()) })
    }

    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.call("hipEventRecord", |hip| unsafe { (hip.hipEventRecord)(event.raw(), handle(stream)) })
    }

    unsafe fn poll(&self, event: &Event) -> Result<Progress> {
        let _current = self.current()?;
        // SAFETY: 1. the caller's promise.
        let status = unsafe { (self.driver.symbols.core.hipEventQuery)(event.raw()) };
        if status == NOT_READY {
            self.driver.forget_not_ready();
            return Ok(Progress::Pending);
        }
        self.driver.check("hipEventQuery", status)?;
        Ok(Progress::Done)
    }

    /// Not by `hipEventSynchronize`: while a thread is in it, other threads that query the event block.
    unsafe fn wait(&self, event: &Event) -> Result<()> {
        let mut pause = SHORTEST_PAUSE;
        // SAFETY: 1. the caller's promise.
        while !unsafe { self.poll(event) }?.is_done() {
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.call("hipStreamWaitEvent", |hip| unsafe { (hip.hipStreamWaitEvent)(handle(stream), event.raw(), 0) })
    }

    fn virtual_memory(&self) -> Result<&dyn VirtualMemory, Missing> {
        let found = &self.unit.granularity;
        self.with(Feature::VirtualMemory, found).map(|device| device as _)
    }

    fn stream_ordered(&self) -> Result<&dyn StreamOrdered, Missing> {
        let found = &self.tested_pool();
        self.with(Feature::StreamOrdered, found).map(|device| device as _)
    }

    fn host_memory(&self) -> Result<&dyn HostMemory, Missing> {
        let found = &self.driver.symbols.host_memory;
        self.with(Feature::HostMemory, found).map(|device| device as _)
    }

    fn ipc(&self) -> Result<&dyn Ipc, Missing> {
        let found = &self.driver.symbols.ipc;
        self.with(Feature::Ipc, found).map(|device| device as _)
    }

    fn capture(&self) -> Result<&dyn Capture, Missing> {
        let found = &self.driver.symbols.capture;
        self.with(Feature::Capture, found).map(|device| device as _)
    }

    fn peer_access(&self) -> Result<&dyn PeerAccess, Missing> {
        let found = &self.driver.symbols.peer_access;
        self.with(Feature::PeerAccess, found).map(|device| device as _)
    }

    fn transfer(&self) -> Result<&dyn Transfer, Missing> {
        let found = &self.driver.symbols.transfer;
        self.with(Feature::Transfer, found).map(|device| device as _)
    }

    fn host_calls(&self) -> Result<&dyn HostCalls, Missing> {
        let found = &self.driver.symbols.host_calls;
        self.with(Feature::HostCalls, found).map(|device| device as _)
    }
}

/// The handle to pass for a stream.
pub(crate) const fn handle(stream: StreamRef) -> StreamHandle {
    match stream.raw() {
        LEGACY_STREAM => StreamRef::DEFAULT.raw(),
        raw => raw,
    }
}

/// Refuses a size of zero.
pub(crate) const fn check_size(call: &'static str, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Err(Error::new(ErrorKind::InvalidValue, call));
    }
    Ok(())
}

/// An address that the driver has given out; null with success is no memory.
pub(crate) fn address(call: &'static str, at: u64) -> Result<DevicePtr> {
    DevicePtr::new(at).ok_or(Error::new(ErrorKind::OutOfMemory, call))
}

//! Memory, streams and events, traced.

use super::{Facts, Traced};
use crate::{
    Call, Capture, Device, DeviceInfo, DevicePtr, Event, HostCalls, HostMemory, Ipc, MemoryInfo, Missing, PeerAccess,
    Progress, Result, Stream, StreamOrdered, StreamRef, Transfer, VirtualMemory,
};

impl<D: Device> Device for Traced<D> {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.tell(Facts::of(Call::MemoryInfo), || self.device.memory_info())
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
        let facts = Facts::of(Call::Allocate).bytes(bytes);
        let run = || self.device.allocate(bytes);
        self.tell_made(facts, run, |ptr| ptr.address())
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.tell(Facts::of(Call::Free).subject(ptr.address()), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.free(ptr) }
        })
    }

    fn create_stream(&self) -> Result<Stream> {
        let run = || self.device.create_stream();
        self.tell_made(Facts::of(Call::CreateStream), run, |made| made.raw() as u64)
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let facts = Facts::of(Call::DestroyStream).subject(stream.raw() as u64).stream(stream.borrow());
        self.tell(facts, || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.destroy_stream(stream) }
        })
    }

    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()> {
        self.tell(Facts::of(Call::Synchronize).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.synchronize(stream) }
        })
    }

    fn synchronize_device(&self) -> Result<()> {
        self.tell(Facts::of(Call::SynchronizeDevice), || self.device.synchronize_device())
    }

    fn create_event(&self) -> Result<Event> {
        let run = || self.device.create_event();
        self.tell_made(Facts::of(Call::CreateEvent), run, |made| made.raw() as u64)
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        self.tell(of_event(Call::DestroyEvent, &event), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.destroy_event(event) }
        })
    }

    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
        self.tell(of_event(Call::Record, event).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.record(event, stream) }
        })
    }

    unsafe fn poll(&self, event: &Event) -> Result<Progress> {
        self.tell(of_event(Call::Poll, event), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.poll(event) }
        })
    }

    unsafe fn wait(&self, event: &Event) -> Result<()> {
        self.tell(of_event(Call::Wait, event), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.wait(event) }
        })
    }

    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
        self.tell(of_event(Call::StreamWait, event).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { self.device.stream_wait(stream, event) }
        })
    }

    fn virtual_memory(&self) -> Result<&dyn VirtualMemory, Missing> {
        self.device.virtual_memory().map(|_| self as _)
    }

    fn stream_ordered(&self) -> Result<&dyn StreamOrdered, Missing> {
        self.device.stream_ordered().map(|_| self as _)
    }

    fn host_memory(&self) -> Result<&dyn HostMemory, Missing> {
        self.device.host_memory().map(|_| self as _)
    }

    fn ipc(&self) -> Result<&dyn Ipc, Missing> {
        self.device.ipc().map(|_| self as _)
    }

    fn capture(&self) -> Result<&dyn Capture, Missing> {
        self.device.capture().map(|_| self as _)
    }

    fn peer_access(&self) -> Result<&dyn PeerAccess, Missing> {
        self.device.peer_access().map(|_| self as _)
    }

    fn transfer(&self) -> Result<&dyn Transfer, Missing> {
        self.device.transfer().map(|_| self as _)
    }

    fn host_calls(&self) -> Result<&dyn HostCalls, Missing> {
        self.device.host_calls().map(|_| self as _)
    }
}

/// A call that names an event.
const fn of_event(call: Call, event: &Event) -> Facts {
    Facts::of(call).subject(event.raw() as u64)
}

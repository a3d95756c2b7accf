//! Memory, streams and events, checked.

use cachette_hal::{Call, Device, DevicePtr, Event, MemoryInfo, Progress, Result, Stream, StreamRef, Use};

use super::{Checked, Resource};
use cachette_hal::forward_groups;

impl<D: Device> Device for Checked<D> {
    forward_groups!();

    fn uses(&self, stream: StreamRef, at: DevicePtr, bytes: u64, access: Use) {
        self.device.uses(stream, at, bytes, access);
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.device.memory_info()
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
        let ptr = self.device.allocate(bytes)?;
        self.watch.note(Call::Allocate, Resource::Memory, ptr.address(), bytes);
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        let key = (Resource::Memory, ptr.address());
        // SAFETY: 1. The ledger lists `ptr` as live. 2. The caller's promise.
        self.watch.end(Call::Free, key, || unsafe { self.device.free(ptr) })
    }

    fn create_stream(&self) -> Result<Stream> {
        let stream = self.device.create_stream()?;
        self.watch.note(Call::CreateStream, Resource::Stream, stream.raw() as u64, 0);
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let key = (Resource::Stream, stream.raw() as u64);
        let call = Call::DestroyStream;
        self.watch.check(|ledger| ledger.not_captured(call, key))?;
        // SAFETY: 1. The ledger lists `stream` as live.
        self.watch.end(call, key, || unsafe { self.device.destroy_stream(stream) })
    }

    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()> {
        self.check_stream(Call::Synchronize, stream)?;
        // SAFETY: 1. Checked above.
        unsafe { self.device.synchronize(stream) }
    }

    fn synchronize_device(&self) -> Result<()> {
        self.device.synchronize_device()
    }

    fn create_event(&self) -> Result<Event> {
        let event = self.device.create_event()?;
        self.watch.note(Call::CreateEvent, Resource::Event, event.raw() as u64, 0);
        Ok(event)
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let key = (Resource::Event, event.raw() as u64);
        // SAFETY: 1. The ledger lists `event` as live.
        self.watch.end(Call::DestroyEvent, key, || unsafe { self.device.destroy_event(event) })
    }

    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
        self.check_event(Call::Record, event)?;
        self.check_stream(Call::Record, stream)?;
        // SAFETY: 1. Both checked above.
        unsafe { self.device.record(event, stream) }
    }

    unsafe fn poll(&self, event: &Event) -> Result<Progress> {
        self.check_event(Call::Poll, event)?;
        // SAFETY: 1. Checked above.
        unsafe { self.device.poll(event) }
    }

    unsafe fn wait(&self, event: &Event) -> Result<()> {
        self.check_event(Call::Wait, event)?;
        // SAFETY: 1. Checked above.
        unsafe { self.device.wait(event) }
    }

    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
        self.check_stream(Call::StreamWait, stream)?;
        self.check_event(Call::StreamWait, event)?;
        // SAFETY: 1. Both checked above.
        unsafe { self.device.stream_wait(stream, event) }
    }
}

impl<D: Device> Checked<D> {
    /// Fails unless the stream is live.
    pub(super) fn check_stream(&self, call: Call, stream: StreamRef) -> Result<()> {
        self.watch.used(call, Resource::Stream, stream.raw())
    }

    /// Fails unless the event is live.
    fn check_event(&self, call: Call, event: &Event) -> Result<()> {
        self.watch.used(call, Resource::Event, event.raw())
    }
}

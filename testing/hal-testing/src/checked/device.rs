//! Memory, streams and events, checked.

use cachette_hal::{Call, Device, DevicePtr, Event, MemoryInfo, Progress, Result, Stream, StreamRef, Use};

use super::table::{creates, ends, passes, uses};
use super::{Checked, Resource};
use cachette_hal::forward_groups;

impl<D: Device> Device for Checked<D> {
    forward_groups!();

    fn uses(&self, stream: StreamRef, at: DevicePtr, bytes: u64, access: Use) {
        self.device.uses(stream, at, bytes, access);
    }

    passes! {
        []
        fn memory_info() -> MemoryInfo;
        fn synchronize_device() -> ();
    }

    creates! {
        []
        fn allocate(bytes: u64) -> DevicePtr as made: Allocate, Memory, made.address(), bytes;
        fn create_stream() -> Stream as made: CreateStream, Stream, made.raw() as u64, 0;
        fn create_event() -> Event as made: CreateEvent, Event, made.raw() as u64, 0;
    }

    uses! {
        []
        fn synchronize(stream: StreamRef) -> (): Synchronize, check_stream(stream);
        fn record(event: &Event, stream: StreamRef) -> (): Record, check_event(event), check_stream(stream);
        fn poll(event: &Event) -> Progress: Poll, check_event(event);
        fn wait(event: &Event) -> (): Wait, check_event(event);
        fn stream_wait(stream: StreamRef, event: &Event) -> (): StreamWait, check_stream(stream), check_event(event);
    }

    ends! {
        []
        fn free(ptr: DevicePtr): Free, Memory, ptr.address();
        fn destroy_stream(stream: Stream): DestroyStream, Stream, stream.raw() as u64, check_not_captured(&stream);
        fn destroy_event(event: Event): DestroyEvent, Event, event.raw() as u64;
    }
}

impl<D: Device> Checked<D> {
    pub(super) fn check_stream(&self, call: Call, stream: StreamRef) -> Result<()> {
        self.watch.used(call, Resource::Stream, stream.raw())
    }

    fn check_not_captured(&self, call: Call, stream: &Stream) -> Result<()> {
        self.watch.check(|ledger| ledger.not_captured(call, (Resource::Stream, stream.raw() as u64)))
    }

    fn check_event(&self, call: Call, event: &Event) -> Result<()> {
        self.watch.used(call, Resource::Event, event.raw())
    }
}

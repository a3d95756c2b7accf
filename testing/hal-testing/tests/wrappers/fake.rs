//! A device made of numbers that accepts every call.

mod groups;

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use cachette_hal::{
    Call, Capture, Device, DeviceInfo, DevicePtr, Error, ErrorKind, Event, Feature, HostCalls, HostMemory, Ipc,
    MemoryInfo, Missing, Ordinal, PeerAccess, Progress, Result, Stream, StreamOrdered, StreamRef, Transfer, Vendor,
    VirtualMemory,
};

/// Makes a call whose promises the fake does not need.
macro_rules! call {
    ($call:expr) => {{
        // SAFETY: the fake deals in numbers and touches no memory that it is given.
        unsafe { $call }
    }};
}
pub(crate) use call;

/// How far apart the numbers are that the fake gives out; no test asks for more bytes.
pub(crate) const STRIDE: u64 = 0x10_0000;

/// Something to do in the middle of a call.
type Interlude = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    made: u64,
    reused: Option<u64>,
    fails: bool,
    interlude: Option<Interlude>,
}

/// A device made of numbers that accepts every call.
pub(crate) struct Fake {
    info: DeviceInfo,
    has_groups: bool,
    state: Mutex<State>,
}

impl Fake {
    /// A device with every group.
    pub(crate) fn new() -> Self {
        Self {
            info: DeviceInfo::new(Ordinal(0), Vendor::Host, "fake".into(), 1 << 40, 256),
            has_groups: true,
            state: Mutex::default(),
        }
    }

    /// A device without any group.
    pub(crate) fn bare() -> Self {
        Self { has_groups: false, ..Self::new() }
    }

    /// Every call so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Makes the next call fail.
    pub(crate) fn fail_next(&self) {
        self.state().fails = true;
    }

    /// Makes the next call that makes something give this number again.
    pub(crate) fn reuse(&self, number: u64) {
        self.state().reused = Some(number);
    }

    /// Runs `interlude` in the middle of the next call.
    pub(crate) fn during_next(&self, interlude: impl FnOnce() + Send + 'static) {
        self.state().interlude = Some(Box::new(interlude));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no call panics under the lock")
    }

    /// Counts a call and answers it.
    fn answer<T>(&self, call: Call, value: T) -> Result<T> {
        let (fails, interlude) = {
            let mut state = self.state();
            state.calls.push(call);
            (std::mem::take(&mut state.fails), state.interlude.take())
        };
        if let Some(interlude) = interlude {
            interlude();
        }
        if fails {
            return Err(Error::from_status(ErrorKind::Other, call.name(), 999));
        }
        Ok(value)
    }

    /// Counts a call and answers it with a new number.
    fn make(&self, call: Call) -> Result<u64> {
        self.answer(call, ())?;
        let mut state = self.state();
        state.made += 1;
        let fresh = state.made * STRIDE;
        Ok(state.reused.take().unwrap_or(fresh))
    }

    fn make_address(&self, call: Call) -> Result<DevicePtr> {
        self.make(call).map(|number| DevicePtr::new(number).expect("numbers begin at one stride"))
    }

    fn make_handle(&self, call: Call) -> Result<usize> {
        let number = self.make(call)?;
        Ok(usize::try_from(number).expect("the target has 64 bits"))
    }

    fn group(&self, feature: Feature) -> Result<&Self, Missing> {
        self.has_groups.then_some(self).ok_or(Missing::unimplemented(feature))
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

impl Device for Fake {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        let (free, total) = (1 << 30, 1 << 40);
        self.answer(Call::MemoryInfo, MemoryInfo { free, total })
    }
    fn allocate(&self, _bytes: u64) -> Result<DevicePtr> {
        self.make_address(Call::Allocate)
    }
    unsafe fn free(&self, _ptr: DevicePtr) -> Result<()> {
        self.answer(Call::Free, ())
    }
    fn create_stream(&self) -> Result<Stream> {
        self.make_handle(Call::CreateStream).map(Stream::from_raw)
    }
    unsafe fn destroy_stream(&self, _stream: Stream) -> Result<()> {
        self.answer(Call::DestroyStream, ())
    }
    unsafe fn synchronize(&self, _stream: StreamRef) -> Result<()> {
        self.answer(Call::Synchronize, ())
    }
    fn synchronize_device(&self) -> Result<()> {
        self.answer(Call::SynchronizeDevice, ())
    }
    fn create_event(&self) -> Result<Event> {
        self.make_handle(Call::CreateEvent).map(Event::from_raw)
    }
    unsafe fn destroy_event(&self, _event: Event) -> Result<()> {
        self.answer(Call::DestroyEvent, ())
    }
    unsafe fn record(&self, _event: &Event, _stream: StreamRef) -> Result<()> {
        self.answer(Call::Record, ())
    }
    unsafe fn poll(&self, _event: &Event) -> Result<Progress> {
        self.answer(Call::Poll, Progress::Done)
    }
    unsafe fn wait(&self, _event: &Event) -> Result<()> {
        self.answer(Call::Wait, ())
    }
    unsafe fn stream_wait(&self, _stream: StreamRef, _event: &Event) -> Result<()> {
        self.answer(Call::StreamWait, ())
    }
    fn virtual_memory(&self) -> Result<&dyn VirtualMemory, Missing> {
        self.group(Feature::VirtualMemory).map(|group| group as _)
    }
    fn stream_ordered(&self) -> Result<&dyn StreamOrdered, Missing> {
        self.group(Feature::StreamOrdered).map(|group| group as _)
    }
    fn host_memory(&self) -> Result<&dyn HostMemory, Missing> {
        self.group(Feature::HostMemory).map(|group| group as _)
    }
    fn ipc(&self) -> Result<&dyn Ipc, Missing> {
        self.group(Feature::Ipc).map(|group| group as _)
    }
    fn capture(&self) -> Result<&dyn Capture, Missing> {
        self.group(Feature::Capture).map(|group| group as _)
    }
    fn peer_access(&self) -> Result<&dyn PeerAccess, Missing> {
        self.group(Feature::PeerAccess).map(|group| group as _)
    }
    fn transfer(&self) -> Result<&dyn Transfer, Missing> {
        self.group(Feature::Transfer).map(|group| group as _)
    }
    fn host_calls(&self) -> Result<&dyn HostCalls, Missing> {
        self.group(Feature::HostCalls).map(|group| group as _)
    }
}

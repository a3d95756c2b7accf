//! A device made of numbers that accepts every call.

mod groups;

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use cachette_hal::{
    Call, Device, DeviceInfo, DevicePtr, Error, ErrorKind, Event, Feature, MemoryInfo, Missing, Ordinal, Progress,
    Result, Stream, StreamRef, Vendor, group_accessors,
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
    fn make(&self, call: Call) -> Result<usize> {
        self.answer(call, ())?;
        let mut state = self.state();
        state.made += 1;
        let fresh = state.made * STRIDE;
        Ok(usize::try_from(state.reused.take().unwrap_or(fresh)).expect("the target has 64 bits"))
    }

    fn group(&self, feature: Feature) -> Result<&Self, Missing> {
        self.has_groups.then_some(self).ok_or(Missing::unimplemented(feature))
    }
}

/// The address that a number is.
fn address(number: usize) -> DevicePtr {
    DevicePtr::new(number as u64).expect("numbers begin at one stride")
}

/// Methods that count their call and answer with nothing, with a value, or with what a new number is.
macro_rules! answers {
    () => {};
    (@[$($unsafe:tt)?] $call:ident $name:ident($($type:ty),*); $($others:tt)*) => {
        answers! { @[$($unsafe)?] $call $name($($type),*) -> () = (); $($others)* }
    };
    (@[$($unsafe:tt)?] $call:ident $name:ident($($type:ty),*) -> $value:ty = $answer:expr; $($others:tt)*) => {
        $($unsafe)? fn $name(&self, $(_: $type),*) -> Result<$value> {
            self.answer(Call::$call, $answer)
        }
        answers! { $($others)* }
    };
    (@[$($unsafe:tt)?] $call:ident $name:ident($($type:ty),*) -> $value:ty: $made:expr; $($others:tt)*) => {
        $($unsafe)? fn $name(&self, $(_: $type),*) -> Result<$value> {
            self.make(Call::$call).map($made)
        }
        answers! { $($others)* }
    };
    (unsafe $($rest:tt)*) => {
        answers! { @[unsafe] $($rest)* }
    };
    ($($rest:tt)*) => {
        answers! { @[] $($rest)* }
    };
}
use answers;

/// A group, if the device has groups.
macro_rules! group {
    ($fake:expr, $accessor:ident, $group:ident) => {
        $fake.group(Feature::$group).map(|group| group as _)
    };
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
    answers! {
        MemoryInfo memory_info() -> MemoryInfo = MemoryInfo { free: 1 << 30, total: 1 << 40 };
        Allocate allocate(u64) -> DevicePtr: address;
        unsafe Free free(DevicePtr);
        CreateStream create_stream() -> Stream: Stream::from_raw;
        unsafe DestroyStream destroy_stream(Stream);
        unsafe Synchronize synchronize(StreamRef);
        SynchronizeDevice synchronize_device();
        CreateEvent create_event() -> Event: Event::from_raw;
        unsafe DestroyEvent destroy_event(Event);
        unsafe Record record(&Event, StreamRef);
        unsafe Poll poll(&Event) -> Progress = Progress::Done;
        unsafe Wait wait(&Event);
        unsafe StreamWait stream_wait(StreamRef, &Event);
    }
    group_accessors!(group);
}

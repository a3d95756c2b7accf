//! Filling and reading device memory, and what must be found in it.

use cachette::hal::owned::OwnedEvent;
use cachette::hal::{Device, DevicePtr, Transfer};

use crate::fixture::{Fixture, Stream};

/// A read that is queued, and what it must show.
#[derive(Debug)]
pub(crate) struct Download {
    into: Vec<u8>,
    byte: u8,
    stream: Stream,
}

impl Download {
    /// Waits until it is done, and checks it.
    pub(crate) fn check(self, fixture: &Fixture) {
        fixture.settle(&self.stream);
        assert_filled(&self.into, self.byte, "memory read by another stream");
    }
}

/// Every byte of `read` is `byte`.
#[track_caller]
pub(crate) fn assert_filled(read: &[u8], byte: u8, what: &str) {
    if read == vec![byte; read.len()] {
        return;
    }
    let at = read.iter().position(|found| *found != byte).unwrap_or(0);
    let length = read.len();
    panic!("{what}: byte {at} of {length} is {} instead of {byte}", read[at]);
}

/// Copies and fills in the streams of the device of `stream`.
pub(crate) fn transfer(stream: &Stream) -> &dyn Transfer {
    stream.device().transfer().expect("the host device copies")
}

fn place(address: u64) -> DevicePtr {
    DevicePtr::new(address).expect("memory has an address")
}

impl Fixture {
    /// Queues that memory is filled, by its own stream; `None` if the call failed.
    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: u64, stream: &Stream) -> Option<()> {
        // SAFETY: 1. the stream is live. 3. the memory is the worker's, allocated for the stream.
        let filled = unsafe { transfer(stream).fill(place(address), byte, bytes, stream.handle()) };
        self.done(filled)
    }

    /// Reads memory in the order of `stream`; `None` if a call failed.
    pub(crate) fn read(&self, address: u64, bytes: u64, stream: &Stream) -> Option<Vec<u8>> {
        let read = self.download(address, bytes, 0, stream)?;
        self.settle(stream);
        Some(read.into)
    }

    /// Lets `stream` read memory of another stream, after what that has to do now.
    pub(crate) fn read_elsewhere(
        &self,
        (address, bytes, byte): (u64, u64, u8),
        home: &Stream,
        stream: &Stream,
    ) -> Option<Download> {
        self.follow(stream, home)?;
        self.download(address, bytes, byte, stream)
    }

    fn download(&self, address: u64, bytes: u64, byte: u8, stream: &Stream) -> Option<Download> {
        let length = usize::try_from(bytes).expect("it fits the host");
        let mut into = vec![0; length];
        let to = into.as_mut_ptr();
        // SAFETY: 1. the stream is live. 3. the memory is not given to others before the stream has come so far, which
        // is what is tested. 4. `into` is not touched before the stream was waited for.
        let queued = unsafe { transfer(stream).download(to, place(address), length, stream.handle()) };
        self.done(queued)?;
        Some(Download { into, byte, stream: stream.clone() })
    }

    /// Makes `stream` wait for what `other` has to do now.
    fn follow(&self, stream: &Stream, other: &Stream) -> Option<()> {
        let event = self.done(OwnedEvent::create(other.device()))?;
        // SAFETY: 1. the stream is live.
        self.done(unsafe { event.record_raw(other.handle()) })?;
        // SAFETY: 1. both are live.
        self.done(unsafe { stream.device().stream_wait(stream.handle(), event.get()) })
    }

    /// Waits until a stream has run dry, also if a wait fails.
    pub(crate) fn settle(&self, stream: &Stream) {
        while let Err(error) = stream.synchronize() {
            assert!(self.allows_failure(error.kind()), "{error}");
        }
    }
}

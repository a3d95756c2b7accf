//! An event with an owner.

use super::OwnedStream;
use super::closing::closes;
use crate::{Device, Event, Progress, Result, StreamRef};

/// An event with an owner.
#[derive(Debug)]
pub struct OwnedEvent<D: Device> {
    device: D,
    /// `None` only after [`close`](Self::close).
    event: Option<Event>,
}

impl<D: Device> OwnedEvent<D> {
    /// Creates an event of `device`.
    pub fn create(device: D) -> Result<Self> {
        let event = device.create_event()?;
        Ok(Self { device, event: Some(event) })
    }

    /// The event, as an argument of driver calls.
    ///
    /// # Panics
    ///
    /// Never: only `close` and the destructor empty an owner.
    pub const fn get(&self) -> &Event {
        self.event.as_ref().expect("the owner holds its event until it is dropped")
    }

    /// Records the current end of a stream.
    pub fn record<E: Device>(&self, stream: &OwnedStream<E>) -> Result<()> {
        // SAFETY: 1. both owners are alive.
        unsafe { self.record_raw(stream.get()) }
    }

    /// Records the current end of a stream that has another owner.
    ///
    /// # Safety
    ///
    /// Promise 1 for `stream`.
    pub unsafe fn record_raw(&self, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. this owner has the event; the caller promises it for the stream.
        unsafe { self.device.record(self.get(), stream) }
    }

    /// Whether the work before the last record has finished; does not block.
    pub fn poll(&self) -> Result<Progress> {
        // SAFETY: 1. this owner has the event.
        unsafe { self.device.poll(self.get()) }
    }

    /// Blocks the host until the work before the last record has finished.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: 1. this owner has the event.
        unsafe { self.device.wait(self.get()) }
    }

    /// Makes later work in `stream` wait for the event's last record.
    pub fn hold_back<E: Device>(&self, stream: &OwnedStream<E>) -> Result<()> {
        // SAFETY: 1. both owners are alive.
        unsafe { self.device.stream_wait(stream.get(), self.get()) }
    }

    fn destroy(&mut self) -> Result<()> {
        // SAFETY: 1. this device created the handle, which leaves its owner here.
        self.event.take().map_or(Ok(()), |event| unsafe { self.device.destroy_event(event) })
    }
}

closes! {
    /// Destroys the event and returns the result.
    OwnedEvent<D> by destroy
}

//! A stream with an owner.

use super::closing::closes;
use crate::{Device, Result, Stream, StreamRef};

/// A stream with an owner.
#[derive(Debug)]
pub struct OwnedStream<D: Device> {
    device: D,
    /// `None` only after [`close`](Self::close).
    stream: Option<Stream>,
    borrowed: StreamRef,
}

impl<D: Device> OwnedStream<D> {
    /// Creates a stream of `device`.
    pub fn create(device: D) -> Result<Self> {
        let stream = device.create_stream()?;
        Ok(Self { device, borrowed: stream.borrow(), stream: Some(stream) })
    }

    /// The stream, as an argument of driver calls; valid while the owner lives.
    #[must_use]
    pub const fn get(&self) -> StreamRef {
        self.borrowed
    }

    /// Blocks the host until all work queued so far has finished.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: 1. this owner has the stream and keeps it alive.
        unsafe { self.device.synchronize(self.borrowed) }
    }

    fn destroy(&mut self) -> Result<()> {
        // SAFETY: 1. this device created the handle, which leaves its owner here.
        self.stream.take().map_or(Ok(()), |stream| unsafe { self.device.destroy_stream(stream) })
    }
}

closes! {
    /// Destroys the stream and returns the result.
    OwnedStream<D> by destroy
}

//! The state of a stream in the allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cachette_hal::{self as hal, CaptureId, CaptureNode, CaptureStatus, Device, StreamRef};

use crate::device_state::DeviceState;

/// The state of a stream; every heap that is bound to the stream keeps it alive.
#[derive(Debug)]
pub(crate) struct StreamState<D: Device> {
    shared: Arc<DeviceState<D>>,
    stream: StreamRef,
    /// Unique among stream states. Streams of two devices may share a handle, such as that of the default stream.
    number: u64,
    /// The handle, if the allocator created the stream and must destroy it.
    owned: Option<hal::Stream>,
}

impl<D: Device> StreamState<D> {
    /// Creates a stream that the allocator owns.
    pub(crate) fn create(shared: Arc<DeviceState<D>>) -> hal::Result<Self> {
        let owned = shared.device.create_stream()?;
        let mut stream_state = Self::adopt(shared, owned.borrow());
        stream_state.owned = Some(owned);
        Ok(stream_state)
    }

    /// Adopts a stream of the caller, who destroys it after this allocator is gone.
    pub(crate) fn adopt(shared: Arc<DeviceState<D>>, stream: StreamRef) -> Self {
        /// Relaxed: only the numbers must differ.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { shared, stream, number: NEXT.fetch_add(1, Ordering::Relaxed), owned: None }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn handle(&self) -> StreamRef {
        self.stream
    }

    /// Whether the driver says that it does not know a stream that the caller made. Not every driver can tell.
    pub(crate) fn is_unknown(&self) -> bool {
        if self.owned.is_some() || self.stream == StreamRef::DEFAULT {
            return false;
        }
        let invalid = |error: hal::Error| error.kind() == hal::ErrorKind::InvalidHandle;
        self.capture_status().is_some_and(|status| status.is_err_and(invalid))
    }

    /// Whether work in the stream is being captured, and not run; if the driver cannot say, it is not.
    pub(crate) fn is_capturing(&self) -> bool {
        self.ask_capturing().unwrap_or(false)
    }

    /// Whether work in the stream is being captured, for callers that must not guess: an event would break a capture.
    /// A stream that the driver does not know is in no capture.
    pub(crate) fn ask_capturing(&self) -> hal::Result<bool> {
        Ok(self.known_status()? != CaptureStatus::Idle)
    }

    /// The capture that the stream takes part in. A stream that the driver does not know is in none.
    pub(crate) fn capture(&self) -> hal::Result<Option<CaptureId>> {
        Ok(active(self.known_status()?))
    }

    /// Appends what the stream's next captured work depends on; the capture that it takes part in, or `None` if it
    /// takes part in none or the driver cannot say.
    pub(crate) fn frontier(&self, nodes: &mut Vec<CaptureNode>) -> Option<CaptureId> {
        let capture = self.shared.device.capture().ok()?;
        // SAFETY: 1. the stream state keeps its stream alive. A caller that enables reuse in captures has promised that
        // one thread at a time uses the streams of a capture.
        unsafe { capture.frontier(self.stream, nodes) }.ok().and_then(active)
    }

    /// Idle if the device cannot capture, or the driver does not know the stream.
    fn known_status(&self) -> hal::Result<CaptureStatus> {
        match self.capture_status().unwrap_or(Ok(CaptureStatus::Idle)) {
            Err(error) if error.kind() == hal::ErrorKind::InvalidHandle => Ok(CaptureStatus::Idle),
            status => status,
        }
    }

    /// `None` if the device cannot capture.
    pub(crate) fn capture_status(&self) -> Option<hal::Result<CaptureStatus>> {
        let capture = self.shared.device.capture().ok()?;
        // SAFETY: 1. the stream state keeps its stream alive, or its creator has promised to.
        Some(unsafe { capture.capture_status(self.stream) })
    }

    pub(crate) const fn shared(&self) -> &Arc<DeviceState<D>> {
        &self.shared
    }

    /// Blocks the host until everything queued in the stream so far has ended.
    ///
    /// A wait that fails does not show that the work has ended, so the device is waited for then.
    pub(crate) fn settle(&self) -> Result<(), WaitFailure> {
        let device = &self.shared.device;
        // SAFETY: 1. the stream state keeps its stream alive.
        let Err(error) = (unsafe { device.synchronize(self.stream) }) else { return Ok(()) };
        Err(WaitFailure { error, is_over: device.synchronize_device().is_ok() })
    }
}

const fn active(status: CaptureStatus) -> Option<CaptureId> {
    if let CaptureStatus::Active(id) = status { Some(id) } else { None }
}

/// A wait for a stream that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitFailure {
    pub(crate) error: hal::Error,
    /// Whether another wait has shown that the work has ended; else it may still run.
    pub(crate) is_over: bool,
}

impl<D: Device> Drop for StreamState<D> {
    fn drop(&mut self) {
        if let Some(stream) = self.owned.take()
            && !self.shared.origin.is_inherited()
        {
            // SAFETY: 1. the stream was created for this stream state, and nothing refers to the state any more.
            // A destructor cannot return a failure.
            let _ = unsafe { self.shared.device.destroy_stream(stream) };
        }
    }
}

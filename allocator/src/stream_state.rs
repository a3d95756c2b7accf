//! The state of a stream in the allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cachette_hal::{self as hal, CaptureId, CaptureNode, CaptureStatus, Device, StreamRef};

use crate::device_state::DeviceState;
use crate::sync::Mutex;

/// The state of a stream. Every heap of the stream keeps it alive.
#[derive(Debug)]
pub(crate) struct StreamState<D: Device> {
    pub(crate) shared: Arc<DeviceState<D>>,
    pub(crate) handle: StreamRef,
    /// Unique among stream states. Streams of two devices may share a handle, such as that of the default stream.
    pub(crate) number: u64,
    /// The handle, if the allocator created the stream and must destroy it.
    owned: Option<hal::Stream>,
    /// Held by the thread that marks a point.
    pub(crate) marking: Mutex<()>,
    /// Whether the program has destroyed the stream, by the last query. A new stream may get the handle later.
    gone: AtomicBool,
    /// The number of [`Stream`](crate::Stream)s. Relaxed: the list of dropped streams orders what depends on it.
    handles: AtomicUsize,
    /// The numbers of the heaps of the stream, in all pools.
    pub(crate) heaps: Mutex<Vec<u32>>,
}

impl<D: Device> StreamState<D> {
    /// Creates a stream that the allocator owns.
    pub(crate) fn create(shared: Arc<DeviceState<D>>) -> hal::Result<Self> {
        let owned = shared.device.create_stream()?;
        let mut stream_state = Self::adopt(shared, owned.borrow());
        stream_state.owned = Some(owned);
        Ok(stream_state)
    }

    /// Adopts a stream of the caller, who destroys it after the allocator is dropped.
    pub(crate) fn adopt(shared: Arc<DeviceState<D>>, handle: StreamRef) -> Self {
        /// The first is 1: a queue of pending frees that was never polled says 0. Relaxed: only the numbers must differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (handles, heaps) = (AtomicUsize::new(0), Mutex::default());
        let gone = AtomicBool::new(false);
        Self { shared, handle, number, owned: None, marking: Mutex::default(), gone, handles, heaps }
    }

    /// Adds a handle. Returns whether it is the only one.
    pub(crate) fn add_handle(&self) -> bool {
        self.handles.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Removes a handle. Returns whether it was the last one of a stream that the allocator owns.
    pub(crate) fn remove_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::Relaxed) == 1 && self.owned.is_some()
    }

    /// Returns whether the stream was destroyed at the last query. A driver may crash on any other call for it.
    pub(crate) fn is_gone(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        let gone = || self.gone.load(Ordering::Relaxed);
        // A new stream may have the handle since, so the driver is asked again.
        gone() && (self.known_status().is_err() || gone())
    }

    /// The stream for a call that frees memory behind the stream's work.
    ///
    /// The work of a destroyed stream may still run. So the host waits for the device, and any stream will do.
    pub(crate) fn order_behind(&self) -> hal::Result<StreamRef> {
        if !self.is_gone() {
            return Ok(self.handle);
        }
        self.shared.device.synchronize_device()?;
        Ok(StreamRef::DEFAULT)
    }

    /// Returns whether the driver reports a stream of the caller as unknown. Not every driver can.
    pub(crate) fn is_unknown(&self) -> bool {
        if self.owned.is_some() || self.handle == StreamRef::DEFAULT {
            return false;
        }
        let invalid = |error: hal::Error| error.kind() == hal::ErrorKind::InvalidHandle;
        self.capture_status().is_some_and(|status| status.is_err_and(invalid))
    }

    /// Returns whether work in the stream is being captured. If the driver query fails, it returns `false`.
    pub(crate) fn is_capturing(&self) -> bool {
        self.ask_capturing().unwrap_or(false)
    }

    /// Returns whether work in the stream is being captured, or the driver's error. An event would invalidate a
    /// capture, so some callers must not guess. A stream that the driver does not recognise is in no capture.
    pub(crate) fn ask_capturing(&self) -> hal::Result<bool> {
        Ok(self.known_status()? != CaptureStatus::Idle)
    }

    /// The capture that contains the stream. A stream that the driver does not recognise is in none.
    pub(crate) fn capture(&self) -> hal::Result<Option<CaptureId>> {
        Ok(active(self.known_status()?))
    }

    /// Appends the nodes that the stream's next captured work depends on. Returns the stream's capture, or `None` if
    /// there is none or the driver query fails.
    pub(crate) fn frontier(&self, nodes: &mut Vec<CaptureNode>) -> Option<CaptureId> {
        let capture = self.shared.device.capture().ok()?;
        // SAFETY: 1. the stream state keeps its stream alive. A caller that enables reuse in captures has promised that
        // one thread at a time uses the streams of a capture.
        unsafe { capture.frontier(self.handle, nodes) }.ok().and_then(active)
    }

    /// Idle if the device cannot capture, or if the driver does not recognise the stream. The stream is gone then.
    fn known_status(&self) -> hal::Result<CaptureStatus> {
        let status = self.capture_status().unwrap_or(Ok(CaptureStatus::Idle));
        let gone = status.is_err_and(|error| error.kind() == hal::ErrorKind::InvalidHandle);
        // Relaxed: as in `is_gone`.
        self.gone.store(gone, Ordering::Relaxed);
        if gone { Ok(CaptureStatus::Idle) } else { status }
    }

    /// `None` if the device cannot capture.
    pub(crate) fn capture_status(&self) -> Option<hal::Result<CaptureStatus>> {
        let capture = self.shared.device.capture().ok()?;
        // SAFETY: 1. the stream state keeps its stream alive, or its creator has promised to.
        Some(unsafe { capture.capture_status(self.handle) })
    }

    /// Blocks the host until all work queued in the stream so far has ended.
    ///
    /// A failed wait does not prove that the work has ended, so the whole device is waited for then.
    pub(crate) fn settle(&self) -> Result<(), WaitFailure> {
        let device = &self.shared.device;
        // SAFETY: 1. the stream state keeps its stream alive.
        let Err(error) = (unsafe { device.synchronize(self.handle) }) else { return Ok(()) };
        Err(WaitFailure { error, is_over: device.synchronize_device().is_ok() })
    }
}

const fn active(status: CaptureStatus) -> Option<CaptureId> {
    if let CaptureStatus::Active(id) = status { Some(id) } else { None }
}

/// A failed wait for a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitFailure {
    pub(crate) error: hal::Error,
    /// Whether another wait has proved that the work has ended. Otherwise it may still run.
    pub(crate) is_over: bool,
}

impl<D: Device> Drop for StreamState<D> {
    fn drop(&mut self) {
        // A forked child keeps the states of its parent for ever.
        if let Some(stream) = self.owned.take() {
            // SAFETY: 1. the stream was created for this stream state, and nothing refers to the state any more.
            // A destructor cannot return a failure.
            let _ = unsafe { self.shared.device.destroy_stream(stream) };
        }
    }
}

//! A point at which a stream is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use cachette_hal::Result;

use super::{AsStream, Event, Place, Stream, Subject};
use crate::failure::Verdict;

/// The time after which a gate opens by itself, so that a failed case cannot hang.
const LIMIT: Duration = Duration::from_secs(12);

/// A point at which a stream is held, until the gate is released or dropped.
///
/// Drivers may run the host functions of all streams on one thread. So a case never has two closed gates on different
/// streams, and allocates what it needs before it closes one.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The stream waits for a message, or for the end of this.
    open: Sender<()>,
    passed: Arc<AtomicBool>,
}

impl Gate {
    pub(crate) fn release(&self) {
        // It fails if the stream has continued.
        let _ = self.open.send(());
    }

    /// Releases the gate, and waits for the work of `stream`.
    pub(crate) fn release_and_wait(&self, stream: &Stream) -> Result<()> {
        self.release();
        stream.synchronize()
    }

    /// Returns whether the stream has continued: the gate was released, or opened by itself.
    pub(crate) fn has_passed(&self) -> bool {
        // Acquire pairs with the release in `hold`, although the flag publishes no other data.
        self.passed.load(Ordering::Acquire)
    }
}

impl Subject {
    /// Holds a stream at its current end.
    pub(crate) fn hold(&self, stream: &(impl AsStream + ?Sized)) -> Verdict<Gate> {
        let calls = self.device.host_calls()?;
        let (open, opened) = mpsc::channel();
        let gate = Gate { open, passed: Arc::default() };
        let passed = Arc::clone(&gate.passed);
        let wait = move || {
            // The stream continues, whether the gate was released, dropped or timed out.
            let _ = opened.recv_timeout(LIMIT);
            // Release pairs with the acquire in `has_passed`.
            passed.store(true, Ordering::Release);
        };
        // SAFETY: 1. the stream lives.
        unsafe { calls.call_host(stream.handle(), Box::new(wait)) }?;
        Ok(gate)
    }

    /// Holds a stream at its current end, and records an event after the gate.
    pub(crate) fn hold_marked(&self, stream: &Stream) -> Verdict<(Event, Gate)> {
        let event = self.event()?;
        let gate = self.hold(stream)?;
        event.record(stream)?;
        Ok((event, gate))
    }

    /// Holds a stream at its current end, after one use of transfers.
    ///
    /// Drivers load the code of fills and copies when it is first used, which may wait for the device.
    pub(crate) fn hold_warm(&self, stream: &impl AsStream) -> Verdict<Gate> {
        let scratch = self.filled(64, 0)?;
        self.copy(scratch.span().part(0, 32), scratch.span().part(32, 32), stream)?;
        self.synchronize(stream)?;
        drop(scratch);
        self.hold(stream)
    }
}

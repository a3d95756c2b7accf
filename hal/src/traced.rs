//! A device that reports every call to an observer.

mod counts;
mod groups;

use std::fmt;
use std::sync::Arc;

pub use counts::Counts;

use crate::{Call, Device, DevicePtr, Error, Progress, Result, StreamRef, Use};

/// One call that the driver has completed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DriverCall {
    /// The call.
    pub call: Call,
    /// The address or handle that was passed, or that the call created; zero if there is none.
    pub subject: u64,
    /// The source of a copy, or the host memory of a transfer; otherwise zero.
    pub other: u64,
    /// The size that was passed; zero if none.
    pub bytes: u64,
    /// The stream that was passed.
    pub stream: Option<StreamRef>,
    /// The result of the driver.
    pub outcome: Result<(), Error>,
    /// Whether a poll found its event done.
    pub is_done: bool,
}

/// Receives every call, on the thread that made it.
///
/// Closures over [`&DriverCall`](DriverCall) are observers. An observer must not call the device that it observes:
/// that call would be reported too, and so on.
pub trait Observer: Send + Sync {
    /// Receives one call, after the driver has returned.
    fn call(&self, call: &DriverCall);

    /// Receives the subject, size and stream of one call, before the driver is called.
    ///
    /// Once the driver has freed a handle or an address, another thread may have it before [`call`](Self::call).
    fn before(&self, call: Call, subject: u64, bytes: u64, stream: Option<StreamRef>) {
        let _ = (call, subject, bytes, stream);
    }

    /// Receives a report of [`Device::uses`], which is not a driver call.
    fn uses(&self, stream: StreamRef, at: DevicePtr, bytes: u64, access: Use) {
        let _ = (stream, at, bytes, access);
    }
}

impl<F: Fn(&DriverCall) + Send + Sync> Observer for F {
    fn call(&self, call: &DriverCall) {
        self(call);
    }
}

/// The creator of the observer can keep a reference to it.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn call(&self, call: &DriverCall) {
        (**self).call(call);
    }

    fn before(&self, call: Call, subject: u64, bytes: u64, stream: Option<StreamRef>) {
        (**self).before(call, subject, bytes, stream);
    }

    fn uses(&self, stream: StreamRef, at: DevicePtr, bytes: u64, access: Use) {
        (**self).uses(stream, at, bytes, access);
    }
}

/// A device that reports every call to an observer, with its outcome.
///
/// Only calls that reach the driver are reported. [`Device::info`], the accessors of groups and
/// [`VirtualMemory::granularity`](crate::VirtualMemory::granularity) are not driver calls.
///
/// ```
/// use std::sync::Arc;
///
/// use cachette_hal::traced::{Counts, Traced};
/// use cachette_hal::{Call, Device, Result};
///
/// fn count_events<D: Device>(device: D) -> Result<()> {
///     let counts = Arc::new(Counts::new());
///     let device = Traced::new(device, Arc::clone(&counts));
///     let event = device.create_event()?;
///     // SAFETY: 1. The event was made by this device just now.
///     unsafe { device.destroy_event(event) }?;
///     assert_eq!(counts.of(Call::CreateEvent), 1);
///     assert_eq!(counts.total(), 2);
///     Ok(())
/// }
/// ```
pub struct Traced<D> {
    device: D,
    observer: Box<dyn Observer>,
}

impl<D: Device> Traced<D> {
    /// Reports every call to `device` to `observer`.
    #[must_use]
    pub fn new(device: D, observer: impl Observer + 'static) -> Self {
        Self { device, observer: Box::new(observer) }
    }

    /// The wrapped device.
    pub const fn device(&self) -> &D {
        &self.device
    }

    fn report<T>(&self, call: DriverCall, run: impl FnOnce() -> Result<T>) -> Result<T> {
        self.report_with(call, run, |_| (call.subject, false))
    }

    fn report_poll(&self, call: DriverCall, run: impl FnOnce() -> Result<Progress>) -> Result<Progress> {
        self.report_with(call, run, |progress| (call.subject, progress.is_done()))
    }

    /// Makes one call that creates a resource, and reports it with the handle or address that `number` reads.
    fn report_new<T>(
        &self,
        call: DriverCall,
        run: impl FnOnce() -> Result<T>,
        number: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        self.report_with(call, run, |made| (number(made), false))
    }

    /// Makes one call, and reports it with the subject and the result of a poll that `read` returns.
    fn report_with<T>(
        &self,
        call: DriverCall,
        run: impl FnOnce() -> Result<T>,
        read: impl FnOnce(&T) -> (u64, bool),
    ) -> Result<T> {
        self.observer.before(call.call, call.subject, call.bytes, call.stream);
        let answer = run();
        let (subject, is_done) = answer.as_ref().map_or((call.subject, false), read);
        let outcome = answer.as_ref().map(drop).map_err(|error| *error);
        self.observer.call(&DriverCall { subject, outcome, is_done, ..call });
        answer
    }
}

impl<D: fmt::Debug> fmt::Debug for Traced<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("device", &self.device).finish_non_exhaustive()
    }
}

impl DriverCall {
    /// A call without a subject, before its outcome is known.
    const fn of(call: Call) -> Self {
        Self { call, subject: 0, other: 0, bytes: 0, stream: None, outcome: Ok(()), is_done: false }
    }

    const fn subject(self, subject: u64) -> Self {
        Self { subject, ..self }
    }

    const fn other(self, other: u64) -> Self {
        Self { other, ..self }
    }

    const fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    const fn stream(self, stream: StreamRef) -> Self {
        Self { stream: Some(stream), ..self }
    }
}

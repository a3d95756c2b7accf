//! A device that tracks every live handle and reports misuse.

mod device;
mod groups;
mod ledger;
mod misuse;
mod ranges;
mod table;
mod virtual_memory;
mod watch;

pub use misuse::{Misuse, MisuseKind, Origin, Resource};

use watch::Watch;

use cachette_hal::{Device, StreamRef};

/// A device that tracks every live handle and every live range, and reports misuse.
///
/// A wrong call does not reach the driver. It fails with
/// [`ErrorKind::InvalidHandle`](cachette_hal::ErrorKind::InvalidHandle) or
/// [`ErrorKind::InvalidValue`](cachette_hal::ErrorKind::InvalidValue), and is recorded as a [`Misuse`] with the wrong
/// call and the origin of the handle. A call that fails in the driver changes nothing here. A request for zero bytes is
/// passed on, because the driver must reject it.
///
/// Streams created elsewhere must be registered by [`adopt_stream`](Self::adopt_stream). Memory of a peer is unknown here: once a peer is enabled, a transfer outside
/// known memory is assumed to access the peer's.
///
/// The checks see the order of calls, not the work that is still running, so a violation of promise 2 of `cachette-hal`
/// is not found.
///
/// ```
/// use cachette_hal::Device;
/// use cachette_hal_testing::Checked;
///
/// fn careful<D: Device>(device: D) -> Result<D, Box<dyn std::error::Error>> {
///     let device = Checked::new(device);
///     let event = device.create_event()?;
///     // SAFETY: 1. The event was made by this device just now.
///     unsafe { device.destroy_event(event) }?;
///     device.finish().map_err(|mut misuses| misuses.remove(0).into())
/// }
/// ```
#[derive(Debug)]
pub struct Checked<D> {
    device: D,
    watch: Watch,
}

impl<D: Device> Checked<D> {
    /// Checks `device`, on which only the default stream is live.
    #[must_use]
    pub fn new(device: D) -> Self {
        Self { device, watch: Watch::new() }
    }

    /// Registers a stream that is created and destroyed elsewhere.
    pub fn adopt_stream(&self, stream: StreamRef) {
        self.watch.ledger().adopt(stream);
    }

    /// The wrapped device.
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// Every misuse so far, in order.
    #[must_use]
    pub fn misuses(&self) -> Vec<Misuse> {
        self.watch.misuses()
    }

    /// Every live resource, as the leak that it would be if the device were dropped now.
    #[must_use]
    pub fn leaks(&self) -> Vec<Misuse> {
        self.watch.leaks()
    }

    /// Returns the wrapped device, or every misuse and then every leak.
    pub fn finish(self) -> Result<D, Vec<Misuse>> {
        let mut misuses = self.misuses();
        misuses.extend(self.leaks());
        if misuses.is_empty() { Ok(self.device) } else { Err(misuses) }
    }
}

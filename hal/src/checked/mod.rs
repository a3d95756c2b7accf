//! A device that knows every live handle and reports misuse.

mod device;
mod groups;
mod ledger;
mod misuse;
mod ranges;
mod virtual_memory;
mod watch;

pub use misuse::{Misuse, MisuseKind, Origin, Resource};

use watch::Watch;

use crate::{Device, DevicePtr, StreamRef};

/// A device that knows every live handle and every live range, and reports misuse.
///
/// A wrong call does not reach the driver: it is answered with
/// [`ErrorKind::InvalidHandle`](crate::ErrorKind::InvalidHandle) or
/// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue), and kept as a [`Misuse`] that says what was
/// done and where the handle came from. A call that fails in the driver changes nothing here, and a
/// request for zero bytes is the driver's to refuse.
///
/// What was made elsewhere must be made known by [`adopt_stream`](Self::adopt_stream) or
/// [`adopt_memory`](Self::adopt_memory). Memory of a peer is not known here; once one is enabled, a
/// transfer that touches nothing known is believed to touch the peer's.
///
/// It finds what an order of calls shows. It does not know what work is still running, so a breach of
/// promise 2 of the crate goes unseen.
///
/// ```
/// use cachette_hal::{Checked, Device};
///
/// fn careful<D: Device>(device: D) -> Result<D, Box<dyn std::error::Error>> {
///     let device = Checked::new(device).on_misuse(|misuse| eprintln!("{misuse}"));
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
    /// Watches over `device`, on which nothing is live yet but the default stream.
    #[must_use]
    pub fn new(device: D) -> Self {
        Self { device, watch: Watch::new() }
    }

    /// Tells `observer` of every misuse as it happens, on the thread that makes the wrong call, and of
    /// every leak when the device is dropped or finished.
    #[must_use]
    pub fn on_misuse(mut self, observer: impl Fn(&Misuse) + Send + Sync + 'static) -> Self {
        self.watch.add_observer(Box::new(observer));
        self
    }

    /// Makes a stream known that was created elsewhere, and that is destroyed elsewhere.
    pub fn adopt_stream(&self, stream: StreamRef) {
        let mut ledger = self.watch.ledger();
        ledger.adopt(Resource::Stream, stream.raw() as u64, 0);
    }

    /// Makes device memory known that was allocated elsewhere, and that is freed elsewhere.
    pub fn adopt_memory(&self, at: DevicePtr, bytes: u64) {
        let mut ledger = self.watch.ledger();
        ledger.adopt(Resource::Memory, at.address(), bytes);
    }

    /// The device inside.
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// Every misuse so far, in order.
    #[must_use]
    pub fn misuses(&self) -> Vec<Misuse> {
        self.watch.misuses()
    }

    /// What is live now, each as the leak that it would be if this were the end.
    #[must_use]
    pub fn leaks(&self) -> Vec<Misuse> {
        self.watch.leaks()
    }

    /// Gives the device back, or every misuse and then every leak.
    pub fn finish(self) -> Result<D, Vec<Misuse>> {
        let mut misuses = self.misuses();
        misuses.extend(self.leaks());
        if misuses.is_empty() { Ok(self.device) } else { Err(misuses) }
    }
}

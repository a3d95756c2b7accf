//! The device under test, for a case.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cachette_hal::owned::{
    OwnedBacking, OwnedEvent, OwnedGraph, OwnedMapping, OwnedMemory, OwnedPinned, OwnedReservation, OwnedStream,
};
use cachette_hal::{AnyDevice, Backend, Ordinal, Result, Sharing};

use crate::failure::{Stop, Verdict};
use crate::fixture::Fixture;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
/// Long enough for work that is not held to run.
const SETTLE: Duration = Duration::from_millis(25);

pub(crate) type Stream = OwnedStream<AnyDevice>;
pub(crate) type Event = OwnedEvent<AnyDevice>;
pub(crate) type Memory = OwnedMemory<AnyDevice>;
pub(crate) type Pinned = OwnedPinned<AnyDevice>;
pub(crate) type Reservation = OwnedReservation<AnyDevice>;
pub(crate) type Backing = OwnedBacking<AnyDevice>;
pub(crate) type Mapping<'r> = OwnedMapping<'r, AnyDevice>;
pub(crate) type Graph = OwnedGraph<AnyDevice>;

/// The device under test, for a case.
pub struct Subject {
    /// For content that the host writes and reads; no other work runs in it.
    pub(super) side: Stream,
    pub(crate) device: AnyDevice,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) fixture: Arc<Fixture>,
    pub(crate) ordinal: Ordinal,
    /// Host memory used by transfers. It is kept until the backend above is dropped (fields drop in order). So a device
    /// that reports the end of work too early cannot write to freed memory.
    pub(super) staging: Mutex<Vec<Vec<u8>>>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("fixture", &self.fixture.name)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Subject {
    /// Opens a fresh backend and one device of it.
    pub(crate) fn open(fixture: Arc<Fixture>, ordinal: Ordinal) -> Verdict<Self> {
        let backend = fixture.open().map_err(|why| Stop::failed(format!("the backend did not open: {why}")))?;
        let device = backend.open(ordinal)?;
        let side = Stream::create(Arc::clone(&device))?;
        Ok(Self { side, device, backend, fixture, ordinal, staging: Mutex::default() })
    }

    /// The ordinal of a device other than the one under test.
    pub(crate) fn other_ordinal(&self) -> Ordinal {
        Ordinal(u32::from(self.ordinal.0 == 0))
    }

    pub(crate) fn other_device(&self) -> Result<AnyDevice> {
        self.backend.open(self.other_ordinal())
    }

    pub(crate) fn stream(&self) -> Result<Stream> {
        Stream::create(Arc::clone(&self.device))
    }

    pub(crate) fn event(&self) -> Result<Event> {
        Event::create(Arc::clone(&self.device))
    }

    pub(crate) fn memory(&self, bytes: u64) -> Result<Memory> {
        Memory::allocate(Arc::clone(&self.device), bytes)
    }

    pub(crate) fn pinned(&self, bytes: usize) -> Result<Pinned> {
        Pinned::allocate(Arc::clone(&self.device), bytes)
    }

    pub(crate) fn reservation(&self, bytes: u64) -> Result<Reservation> {
        Reservation::reserve(Arc::clone(&self.device), bytes)
    }

    pub(crate) fn backing(&self, bytes: u64, sharing: Sharing) -> Result<Backing> {
        Backing::create(Arc::clone(&self.device), bytes, sharing)
    }

    /// The free bytes, over all processes.
    pub(crate) fn free_memory(&self) -> Result<u64> {
        Ok(self.device.memory_info()?.free)
    }
}

/// Sleeps long enough for work that is not held to run.
pub(crate) fn settle() {
    thread::sleep(SETTLE);
}

//! Uses of a slice in streams other than its own.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaEvent, CudaStream, DriverError};

/// The uses in other streams that a later use or the free must come after.
///
/// cudarc records the event of a use when it drops its guard, after the work was queued. The guard borrows the slice, so
/// a later write or the free finds every event recorded.
#[derive(Default)]
pub(crate) struct Uses {
    /// Since the last write; one for each stream. The boxes do not move, and leave the list through `&mut self` alone.
    reads: Mutex<Reads>,
    /// The last write, if it was in another stream.
    write: Option<Use>,
}

/// In boxes, because events are lent, and must not move when the list grows.
type Reads = Vec<Box<Use>>;

/// The last use in one stream.
struct Use {
    stream: CUstream,
    event: CudaEvent,
    /// Whether the cache knows of it, and waits for it by itself before the memory is reused.
    is_recorded: bool,
}

// SAFETY: the handle is compared and never used; the event is `Send`.
unsafe impl Send for Use {}
// SAFETY: as above; the event is `Sync`.
unsafe impl Sync for Use {}

impl Uses {
    /// Lets `stream` wait for the last write.
    pub(crate) fn wait_for_write(&self, stream: &CudaStream) -> Result<(), DriverError> {
        self.write.as_ref().map_or(Ok(()), |last| stream.wait(&last.event))
    }

    /// Lets `stream` wait for every use.
    pub(crate) fn wait_for_all(&mut self, stream: &CudaStream) -> Result<(), DriverError> {
        self.wait_for_write(stream)?;
        self.reads_mut().iter().try_for_each(|read| stream.wait(&read.event))
    }

    /// The event to be recorded after a read in `stream`.
    pub(crate) fn add_read(&self, stream: &CudaStream, is_recorded: bool) -> Result<&CudaEvent, DriverError> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let place = reads.iter().position(|read| read.stream == stream.cu_stream());
        let place = if let Some(place) = place {
            // The handle may be a new stream's: then the record that replaces the old one comes after it.
            stream.wait(&reads[place].event)?;
            reads[place].is_recorded &= is_recorded;
            place
        } else {
            reads.push(Box::new(Use::new(stream, is_recorded)?));
            reads.len() - 1
        };
        let event: *const CudaEvent = &raw const reads[place].event;
        // SAFETY: the event lies in a box, which leaves the list through `&mut self` alone, and `self` is borrowed.
        Ok(unsafe { &*event })
    }

    /// The event to be recorded after a write in `stream`, which has waited for every use.
    pub(crate) fn set_write(&mut self, stream: &CudaStream, is_recorded: bool) -> Result<&CudaEvent, DriverError> {
        let write = Use::new(stream, is_recorded)?;
        self.clear();
        Ok(&self.write.insert(write).event)
    }

    /// Forgets the uses, because a stream has waited for them that all later ones wait for.
    pub(crate) fn clear(&mut self) {
        self.write = None;
        self.reads_mut().clear();
    }

    /// Calls `wait` for each use that the cache does not know of.
    pub(crate) fn for_unrecorded(&mut self, wait: impl Fn(&CudaEvent)) {
        let reads = self.reads.get_mut().unwrap_or_else(PoisonError::into_inner);
        let uses = reads.iter().map(|read| &**read).chain(&self.write);
        uses.filter(|last| !last.is_recorded).for_each(|last| wait(&last.event));
    }

    fn reads_mut(&mut self) -> &mut Reads {
        self.reads.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Use {
    fn new(stream: &CudaStream, is_recorded: bool) -> Result<Self, DriverError> {
        Ok(Self { stream: stream.cu_stream(), event: stream.context().new_event(None)?, is_recorded })
    }
}

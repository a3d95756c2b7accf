//! One chunk of a pool that sleeps: what of it is there, and where its contents are.

use std::ptr::NonNull;
use std::sync::Arc;

use cachette_hal::{self as hal, Device, DevicePtr, StreamRef, Transfer, VirtualMemory};

use crate::core::Chunk;
use crate::heap::Heap;

/// Contents of a chunk, and where they are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) at: DevicePtr,
    pub(super) bytes: usize,
    pub(super) host: NonNull<u8>,
}

/// How far a chunk is on its way from sleep to waking; each stage stands on the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It has no memory.
    Away,
    /// It has memory that lies nowhere.
    Backed,
    /// The memory is mapped at the chunk's address.
    Mapped,
    /// The device may touch it.
    Granted,
    /// Its contents are there, or on their way there.
    Filled,
}

/// One chunk of a pool that sleeps.
#[derive(Debug)]
pub(super) struct Entry<D: Device> {
    pub(super) heap: Arc<Heap<D>>,
    pub(super) chunk: Chunk,
    pub(super) saved: Vec<Saved>,
    stage: Stage,
}

// SAFETY: pointers into slabs are followed only by whoever has the slumber that owns both.
unsafe impl<D: Device> Send for Entry<D> {}

impl<D: Device> Entry<D> {
    /// A chunk that is awake.
    pub(super) const fn new(heap: Arc<Heap<D>>, chunk: Chunk, saved: Vec<Saved>) -> Self {
        Self {
            heap,
            chunk,
            saved,
            stage: Stage::Filled,
        }
    }

    /// Whether a step is missing.
    pub(super) fn is_asleep(&self) -> bool {
        self.stage < Stage::Filled
    }

    /// Whether it has no memory.
    pub(super) fn is_away(&self) -> bool {
        self.stage == Stage::Away
    }

    fn address(&self) -> hal::Result<DevicePtr> {
        DevicePtr::new(self.chunk.at).ok_or(hal::Error::new(hal::ErrorKind::InvalidValue, "map"))
    }

    /// Says that its contents are not there.
    pub(super) fn empty(&mut self) {
        self.stage = self.stage.min(Stage::Granted);
    }

    /// Queues copies of the contents to the host.
    pub(super) fn download(&self, transfer: &dyn Transfer, stream: StreamRef) -> hal::Result<()> {
        for saved in &self.saved {
            // SAFETY: 1. the caller made the stream. 3. the range is mapped, and its pool takes no requests. 4. The
            // slab stays with the slumber until the copy has ended.
            unsafe { transfer.download(saved.host.as_ptr(), saved.at, saved.bytes, stream) }?;
        }
        Ok(())
    }

    /// Takes the memory away. After a failure this may be tried again, or the entry woken.
    pub(super) fn send_away(&mut self, memory: &dyn VirtualMemory) -> hal::Result<()> {
        let (at, bytes) = (self.address()?, self.chunk.bytes);
        if self.stage >= Stage::Mapped {
            self.stage = Stage::Mapped;
            // SAFETY: 2. all streams were waited for, the pool takes no requests, and the copies have ended.
            unsafe { memory.unmap(at, bytes) }?;
            self.stage = Stage::Backed;
        }
        if self.stage == Stage::Backed {
            self.heap.shared().chunks.suspend(memory, self.chunk.id)?;
            self.stage = Stage::Away;
            self.heap.note_slept(self.chunk);
        }
        Ok(())
    }

    /// Gets memory again and queues copies of the contents from the host. After a failure this may be tried again, or
    /// the entry sent away.
    pub(super) fn bring_back(
        &mut self,
        memory: &dyn VirtualMemory,
        transfer: Option<&dyn Transfer>,
        stream: StreamRef,
    ) -> hal::Result<()> {
        let (at, Chunk { id, bytes, .. }) = (self.address()?, self.chunk);
        let shared = Arc::clone(self.heap.shared());
        if self.stage == Stage::Away {
            shared.chunks.resume(memory, id, bytes)?;
            self.stage = Stage::Backed;
            self.heap.note_woken(self.chunk);
        }
        if self.stage == Stage::Backed {
            shared.chunks.map(memory, id, at)?;
            self.stage = Stage::Mapped;
        }
        if self.stage == Stage::Mapped {
            let access = shared.access();
            // SAFETY: 2. a right is given, not taken away.
            unsafe { memory.set_access(at, bytes, &access) }?;
            self.stage = Stage::Granted;
        }
        if self.stage == Stage::Granted {
            for saved in &self.saved {
                let Some(transfer) = transfer else { break };
                // SAFETY: 1. the caller made the stream. 3. the range is mapped, and nobody else touches it yet. 4. The
                // slab stays with the slumber until the copy has ended.
                unsafe { transfer.upload(saved.at, saved.host.as_ptr(), saved.bytes, stream) }?;
            }
            self.stage = Stage::Filled;
        }
        Ok(())
    }
}

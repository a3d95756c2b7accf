//! One chunk of a sleeping pool: which steps of its restore are done, and where its contents are.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind, StreamRef, Transfer, VirtualMemory};

use crate::blocks::Chunk;
use crate::device_state::DeviceState;
use crate::elastic::chunk_table::pointer;
use crate::heap::Heap;
use crate::sleep::heap::parts_within;

/// Contents of a chunk, and where they are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedBytes {
    pub(super) at: DevicePtr,
    pub(super) bytes: usize,
    pub(super) host: NonNull<u8>,
}

impl SavedBytes {
    /// Returns the parts that lie in `used`, whose ranges are in order of address.
    pub(super) fn within(self, used: &[Range<u64>]) -> impl Iterator<Item = Self> + use<> {
        let start = self.at.address();
        parts_within(used, &(start..start + self.bytes as u64)).into_iter().filter_map(move |part| {
            let offset = part.start - start;
            let bytes = usize::try_from(part.end - part.start).ok()?;
            // SAFETY: the part begins inside the place that the bytes have in their slab.
            let host = unsafe { self.host.add(usize::try_from(offset).ok()?) };
            Some(Self { at: self.at.add(offset), bytes, host })
        })
    }
}

/// Bytes under the limit that are reserved for a wake and not used yet. A drop returns them.
pub(super) struct Grant<D: Device> {
    shared: Arc<DeviceState<D>>,
    left: u64,
}

impl<D: Device> Grant<D> {
    /// Reserves `bytes` at once, so that a wake does not fail half-way.
    pub(super) fn of(shared: &Arc<DeviceState<D>>, bytes: u64) -> hal::Result<Self> {
        let room = shared.reserve(bytes).ok_or(hal::Error::new(ErrorKind::OutOfMemory, "wake"))?;
        // A progress callback may allocate memory in the meantime, so the room counts as held at once.
        room.keep(bytes);
        Ok(Self { shared: Arc::clone(shared), left: bytes })
    }
}

impl<D: Device> Drop for Grant<D> {
    fn drop(&mut self) {
        self.shared.totals.reserved.fetch_sub(self.left, Relaxed);
    }
}

/// The progress of a chunk from sleep to waking. Each stage builds on the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Released,
    /// It has memory that is not mapped.
    Backed,
    /// The memory is mapped at the chunk's address.
    Mapped,
    /// The device has access. Copies of the contents may be in progress.
    Granted,
    Filled,
}

pub(super) struct SleepingChunk<D: Device> {
    pub(super) heap: Arc<Heap<D>>,
    pub(super) chunk: Chunk,
    pub(super) saved: Vec<SavedBytes>,
    pub(super) stage: Stage,
}

// SAFETY: only the owner of the `OffloadState` follows pointers into slabs, and that state owns both.
unsafe impl<D: Device> Send for SleepingChunk<D> {}

impl<D: Device> SleepingChunk<D> {
    pub(super) fn download(&self, transfer: &dyn Transfer, stream: StreamRef) -> hal::Result<()> {
        for saved in &self.saved {
            // SAFETY: 1. the caller made the stream. 3. the range is mapped, and its pool takes no requests. 4. The
            // `OffloadState` keeps the slab until the copy has ended.
            unsafe { transfer.download(saved.host.as_ptr(), saved.at, saved.bytes, stream) }?;
        }
        Ok(())
    }

    /// Returns the memory to the device. After a failure the caller can try again, or wake the chunk.
    pub(super) fn offload(&mut self, memory: &dyn VirtualMemory) -> hal::Result<()> {
        let (at, bytes) = (pointer(self.chunk.at)?, self.chunk.bytes);
        if self.stage >= Stage::Mapped {
            self.stage = Stage::Mapped;
            // SAFETY: 2. all streams were waited for, the pool takes no requests, and the copies have ended.
            unsafe { memory.unmap(at, bytes) }?;
            self.stage = Stage::Backed;
        }
        if self.stage == Stage::Backed {
            self.heap.shared.chunks.suspend(memory, self.chunk.id)?;
            self.stage = Stage::Released;
            self.heap.note_slept(self.chunk);
        }
        Ok(())
    }

    /// Creates memory again, and queues copies of the contents from the host. After a failure the caller can try again,
    /// or send the chunk away. Once the copies have ended, the caller sets [`Stage::Filled`].
    pub(super) fn restore(
        &mut self,
        memory: &dyn VirtualMemory,
        transfer: Option<&dyn Transfer>,
        stream: StreamRef,
        room: &mut Grant<D>,
    ) -> hal::Result<()> {
        let Chunk { id, at, bytes, .. } = self.chunk;
        let shared = Arc::clone(&self.heap.shared);
        if self.stage == Stage::Released {
            shared.chunks.resume(memory, id, bytes, shared.settings.config().gpu_direct_rdma())?;
            self.stage = Stage::Backed;
            room.left -= bytes;
            self.heap.note_woken(self.chunk);
        }
        if self.stage == Stage::Backed {
            shared.chunks.map(memory, self.chunk)?;
            self.stage = Stage::Mapped;
        }
        if self.stage == Stage::Mapped {
            // SAFETY: 2. the call grants access and removes none.
            unsafe { memory.set_access(pointer(at)?, bytes, &shared.access()) }?;
            self.stage = Stage::Granted;
        }
        if self.stage == Stage::Granted {
            for saved in &self.saved {
                let Some(transfer) = transfer else { break };
                // SAFETY: 1. the caller made the stream. 3. the range is mapped, and nothing else uses it yet. 4. The
                // `OffloadState` keeps the slab until the copy has ended.
                unsafe { transfer.upload(saved.at, saved.host.as_ptr(), saved.bytes, stream) }?;
            }
        }
        Ok(())
    }
}

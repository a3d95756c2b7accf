//! Blocks that other processes can open. They are neither moved nor reused while they are exported.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cachette_hal::{self as hal, AnyDevice, Device, DeviceInfo, DevicePtr, ErrorKind, IpcToken, Sharing, Vendor};
use cachette_ipc::{ChunkHandle, DeviceTag, Export, ExportGuard, ExportKind, ExportedChunk, Span};

use crate::blocks::{BlockId, BlockState, Chunk};
use crate::error::{Error, PointerProblem};
use crate::heap::Heap;
use crate::ipc::error::IpcError;
use crate::pool::PoolProblem;

/// Memory that other processes can open while this value lives.
///
/// Send its [`handle`](Self::handle) to them by any channel. After the drop no process can open the memory; importers
/// that have opened it keep it. The allocation may be freed at any time. Its block is reused once this value is dropped
/// and every importer has closed the memory or ended.
#[derive(Debug)]
pub struct SharedMemory<D: Device = AnyDevice> {
    pub(super) guard: Arc<ExportGuard<ExportedBlock<D>>>,
}

impl<D: Device> SharedMemory<D> {
    /// The bytes that another process needs to open the memory. They contain a secret.
    ///
    /// Every process of the same user that has them can read and write the memory.
    #[must_use]
    pub fn handle(&self) -> Vec<u8> {
        let device = &self.guard.get().heap.shared.device;
        self.guard.handle(device_tag(device.info())).encode()
    }

    /// The usable bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.guard.get().span.bytes
    }

    /// The number of chunks that an importer maps; zero for memory of a direct segment.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.guard.get().chunks.len()
    }

    /// The number of importers that have the memory open.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.guard.readers()
    }
}

impl<D: Device> Drop for SharedMemory<D> {
    fn drop(&mut self) {
        // In a forked child the export belongs to the parent, and must not end here.
        self.guard.get().heap.shared.origin.keep(&self.guard);
    }
}

/// A block that is neither moved nor reused while this value lives.
#[derive(Debug)]
pub(crate) struct ExportedBlock<D: Device> {
    heap: Arc<Heap<D>>,
    id: BlockId,
    span: Span,
    kind: ExportKind,
    /// In order of address; none for a direct segment.
    chunks: Vec<Chunk>,
}

impl<D: Device> ExportedBlock<D> {
    pub(super) fn new(heap: &Arc<Heap<D>>, id: BlockId, first: u64) -> Result<Self, Error> {
        let (span, start, chunks) = heap.begin_export(id, first)?;
        // From here on, the drop of this value ends the export.
        let kind = ExportKind::Chunks { count: u32::try_from(chunks.len()).unwrap_or(u32::MAX) };
        let mut exported = Self { heap: Arc::clone(heap), id, span, kind, chunks };
        let table = &heap.shared.chunks;
        let sharing = |chunk: &Chunk| table.physical(chunk.id, "export_backing").map(|(_, sharing)| sharing);
        if exported.chunks.is_empty() {
            let IpcToken(token) = token_of(heap, start)?;
            exported.kind = ExportKind::Token { token, base: start };
        } else if !exported.chunks.iter().all(|chunk| sharing(chunk).is_ok_and(|way| way != Sharing::Private)) {
            return Err(IpcError::PrivateChunks.into());
        }
        Ok(exported)
    }
}

impl<D: Device> Drop for ExportedBlock<D> {
    fn drop(&mut self) {
        // It may be the thread that serves the importers, which must survive a tracker that panics.
        let _ = catch_unwind(AssertUnwindSafe(|| self.heap.end_export(self.id)));
    }
}

impl<D: Device> Export for ExportedBlock<D> {
    fn span(&self) -> Span {
        self.span
    }

    fn kind(&self) -> ExportKind {
        self.kind
    }

    fn chunks(&self, first: usize, most: usize) -> Result<Vec<ExportedChunk>, String> {
        let shared = &self.heap.shared;
        let _relaxed = shared.relax_capture();
        let export = |chunk: &Chunk| -> hal::Result<ExportedChunk> {
            let memory = shared.device.virtual_memory()?;
            let (backing, sharing) = shared.chunks.physical(chunk.id, "export_backing")?;
            let handle = if sharing == Sharing::Fabric {
                // SAFETY: 1. the backing is live: a block on the chunk is exported, so the chunk stays.
                ChunkHandle::Fabric(unsafe { memory.export_fabric(&backing) }?.0)
            } else {
                // SAFETY: 1. as above.
                ChunkHandle::Descriptor(unsafe { memory.export_backing(&backing) }?)
            };
            Ok(ExportedChunk { bytes: chunk.bytes, handle })
        };
        let chunks = self.chunks.iter().skip(first).take(most);
        chunks.map(export).collect::<hal::Result<_>>().map_err(|error| error.to_string())
    }
}

fn token_of<D: Device>(heap: &Heap<D>, base: u64) -> Result<IpcToken, Error> {
    let device = &heap.shared.device;
    let ipc = device.ipc()?;
    let base = DevicePtr::new(base).ok_or(IpcError::Empty)?;
    let _relaxed = heap.shared.relax_capture();
    // SAFETY: 1. a block of the segment is exported, so the heap keeps the segment.
    let token = unsafe { ipc.export_token(base) };
    token.map_err(|error| match error.kind() {
        ErrorKind::InvalidValue => IpcError::NoToken(error).into(),
        _ => error.into(),
    })
}

pub(super) const fn device_tag(device: &DeviceInfo) -> DeviceTag {
    let vendor = match device.vendor {
        Vendor::Host => b'h',
        Vendor::Nvidia => b'n',
        Vendor::Amd => b'a',
        _ => b'?',
    };
    DeviceTag { vendor, uuid: device.uuid }
}

impl<D: Device> Heap<D> {
    /// Exports an allocated block from `first` on. It stays in place, and is not reused if it is freed, until
    /// [`end_export`](Self::end_export) was called as often. Returns its place in the memory that importers map, the
    /// first address of that memory, and the chunks in order of address, none for a direct segment.
    pub(super) fn begin_export(&self, id: BlockId, first: u64) -> Result<(Span, u64, Vec<Chunk>), Error> {
        let mut state = self.state.lock();
        if state.asleep {
            return Err(PoolProblem::Asleep.of(self.pool_id()));
        }
        let block = &state.blocks.blocks[id];
        let (address, end) = (block.address, block.address + block.bytes());
        let is_allocated = block.state == BlockState::Allocated;
        let segment = state.blocks.segment_of(id).filter(|_| is_allocated);
        let segment = segment.ok_or(Error::InvalidPointer { address, why: PointerProblem::Free })?;
        let chunks = state.blocks.chunks_under(first, end);
        let (start, extent) = match chunks.first() {
            Some(first) => (first.at, chunks.iter().map(|chunk| chunk.bytes).sum()),
            None => (segment.base, segment.bytes),
        };
        state.blocks.blocks[id].slow_free = true;
        state.uses.entry(id).or_default().exports += 1;
        Ok((Span { bytes: end - first, offset: first - start, extent }, start, chunks))
    }

    /// Ends one export. After the last one, a block that was freed in between is freed now.
    pub(super) fn end_export(&self, id: BlockId) {
        let mut state = self.state.lock();
        if let Some(uses) = state.uses.get_mut(&id) {
            uses.exports -= 1;
            if uses.exports == 0 && uses.users.is_empty() {
                state.uses.remove(&id);
                state.blocks.blocks[id].slow_free = state.history_state.is_none() && state.stacks.of(id) != 0;
            }
            return;
        }
        let Some(uses) = state.pending.exported.get_mut(&id) else { return };
        uses.exports -= 1;
        if uses.exports > 0 {
            return;
        }
        let Some(uses) = state.pending.exported.remove(&id) else { return };
        if uses.users.is_empty() {
            drop(self.become_free(state, vec![(id, Vec::new())]));
            return;
        }
        drop(state);
        // If this fails, the next request of the heap retries it.
        let _ = self.record_fences(id, uses);
    }
}

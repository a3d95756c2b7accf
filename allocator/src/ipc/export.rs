//! Blocks that other processes can open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cachette_hal::{AnyDevice, Device, DeviceInfo, DevicePtr, ErrorKind, IpcToken, Sharing, Vendor};
use cachette_ipc::{ChunkHandle, DeviceTag, Export, ExportGuard, ExportKind, ExportedChunk, Span};

use super::error::IpcError;
use super::heap::ExportedRange;
use crate::blocks::{BlockId, Chunk, ChunkId};
use crate::device_state::DeviceState;
use crate::error::Error;
use crate::heap::Heap;

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
    pub(super) fn new(heap: &Arc<Heap<D>>, id: BlockId) -> Result<Self, Error> {
        let ExportedRange { address, bytes, memory: (start, extent), chunks } = heap.begin_export(id)?;
        // From here on, the drop of this value ends the export.
        let span = Span { bytes, offset: address - start, extent };
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
        let state = &self.heap.shared;
        let _relaxed = state.relax_capture();
        let chunks = self.chunks.iter().skip(first).take(most);
        let exported =
            chunks.map(|chunk| Ok(ExportedChunk { bytes: chunk.bytes, handle: export_chunk(state, chunk.id)? }));
        exported.collect::<Result<_, cachette_hal::Error>>().map_err(|error| error.to_string())
    }
}

fn export_chunk<D: Device>(state: &DeviceState<D>, id: ChunkId) -> cachette_hal::Result<ChunkHandle> {
    let memory = state.device.virtual_memory()?;
    let (backing, sharing) = state.chunks.physical(id, "export_backing")?;
    if sharing == Sharing::Fabric {
        // SAFETY: 1. the backing is live: a block on the chunk is exported, so the chunk stays.
        let name = unsafe { memory.export_fabric(&backing) }?;
        return Ok(ChunkHandle::Fabric(name.0));
    }
    // SAFETY: 1. as above.
    unsafe { memory.export_backing(&backing) }.map(ChunkHandle::Descriptor)
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

/// Returns the device tag of a handle.
pub(super) const fn device_tag(device: &DeviceInfo) -> DeviceTag {
    let vendor = match device.vendor {
        Vendor::Host => b'h',
        Vendor::Nvidia => b'n',
        Vendor::Amd => b'a',
        _ => b'?',
    };
    DeviceTag { vendor, uuid: device.uuid }
}

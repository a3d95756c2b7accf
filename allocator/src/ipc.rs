//! Memory that several processes use.
//!
//! One process allocates memory and shares it; other processes of the same user open it and see the same bytes. They
//! receive a [handle](SharedMemory::handle) of about a hundred bytes by any channel.
//!
//! ```
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let memory = allocator.allocate(4 << 20, &stream)?;
//! let shared = allocator.share(&memory)?;
//! let handle = shared.handle();
//!
//! // … usually in another process …
//! let imported = allocator.open_shared(&handle)?;
//! assert_eq!((imported.bytes(), shared.readers()), (4 << 20, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each importer keeps a socket open while it uses the memory. The kernel closes the sockets of a process that ends, even
//! by a crash. `docs/sharing.md` says how long the memory lives on both sides.
//!
//! Streams are not shared. The writer waits for its stream before another process reads. [`ImportedMemory`] waits for
//! the device before it closes.

mod error;
pub(crate) mod export;
pub(crate) mod import;

use std::sync::Arc;

use cachette_hal::Device;

use crate::allocation::Allocation;
use crate::allocator::Allocator;
use crate::blocks::BlockId;
use crate::error::{Error, NO_HEAP};
use crate::heap::Heap;
use export::ExportedBlock;

pub use cachette_ipc::OpenError;
pub use error::IpcError;
pub use export::SharedMemory;
pub use import::ImportedMemory;

impl<D: Device + 'static> Allocator<D> {
    /// Lets other processes of this user open an allocation.
    ///
    /// They can access all bytes of its chunks or its segment, including neighbouring blocks. A pool with shared memory
    /// cannot sleep, and memory of a sleeping pool cannot be shared.
    pub fn share(&self, allocation: &Allocation<D>) -> Result<SharedMemory<D>, Error> {
        match allocation.block() {
            Some((heap, id)) if Arc::ptr_eq(&heap.shared, &self.inner().shared) => {
                self.share_block(heap, id, allocation.address())
            }
            _ => self.share_raw(allocation.address()),
        }
    }

    /// Does the same as [`share`](Self::share), for raw memory.
    pub fn share_raw(&self, address: u64) -> Result<SharedMemory<D>, Error> {
        if address == 0 {
            return Err(IpcError::Empty.into());
        }
        if self.inner().shared.uncached.bytes_at(address).is_some() {
            return Err(IpcError::Uncached.into());
        }
        let (heap, id) = self.find(address)?;
        self.share_block(&heap, id, address)
    }

    /// Shares a block from `first` on.
    fn share_block(&self, heap: &Heap<D>, id: BlockId, first: u64) -> Result<SharedMemory<D>, Error> {
        let heap = self.inner().heaps.get(heap.number).ok_or(NO_HEAP)?;
        let exported = ExportedBlock::new(heap, id, first)?;
        let guard = self.inner().ipc.exporter.export(exported).map_err(IpcError::from)?;
        Ok(SharedMemory { guard: Arc::new(guard) })
    }
}

impl<D: Device> Allocator<D> {
    /// Opens memory that another process has shared, by its [handle](SharedMemory::handle).
    ///
    /// Opening a handle again returns the same addresses. The import reserves no more addresses than the memory needs.
    pub fn open_shared(&self, handle: &[u8]) -> Result<ImportedMemory<D>, Error> {
        let inner = self.inner();
        inner.ipc.open(&inner.shared, handle)
    }
}

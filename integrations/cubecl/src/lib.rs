//! Device memory of cubecl from Cachette.
//!
//! cubecl's memory management cuts pages into buffers, and asks a [`ComputeStorage`] for the pages. [`CachetteStorage`]
//! answers from an [`Allocator`], so the pages share one cache, one limit, one snapshot and one history with every other
//! user of that allocator.
//!
//! ```
//! use cachette::{Allocator, Backends};
//! use cachette_cubecl::CachetteStorage;
//! use cubecl_server::storage::ComputeStorage;
//!
//! let allocator = Allocator::new(Backends::open("host")?); // or "cuda:0", or "hip:0"
//! let stream = allocator.create_stream()?;
//! let mut storage = CachetteStorage::new(allocator.clone(), stream);
//! let page = storage.alloc(1 << 20)?;
//! assert_eq!(storage.get(&page)?.bytes(), 1 << 20);
//! storage.dealloc(page.id);
//! storage.flush(); // the page is free for the next request of the stream
//! assert_eq!(allocator.allocated_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Streams
//!
//! A storage belongs to one stream, as cubecl makes one for each of its streams. A page that is flushed serves the next
//! request of that stream at once. This is the order that cubecl's own storage has with `cuMemFreeAsync`.
//!
//! # Errors
//!
//! | Cachette | cubecl | what cubecl does |
//! |---|---|---|
//! | out of memory | [`IoError::OutOfMemory`] | gives unused pages back and tries again |
//! | larger than any device | [`IoError::BufferTooBig`] | fails at once |
//! | the device is lost | [`IoError::DevicePoisoned`] | fails every later call |
//! | any other | [`IoError::Unknown`], with Cachette's text | fails |
//!
//! cubecl's out-of-memory error has room for the size alone. [`Allocator::on_out_of_memory`] receives the whole report.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fmt;

use cachette::hal::Device;
use cachette::{Allocation, Allocator, Error, Stream};
use cubecl_environment::backtrace::BackTrace;
use cubecl_runtime::poison::DevicePoison;
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};

/// Pages of cubecl's pools, from one stream of an allocator.
pub struct CachetteStorage<D: Device> {
    allocator: Allocator<D>,
    stream: Stream<D>,
    pages: HashMap<StorageId, Allocation<D>>,
    /// Deallocated and not flushed; their pages are still in `pages`.
    deallocated: Vec<StorageId>,
    /// The sum of what was asked for, over `pages`.
    bytes: u64,
}

/// A part of a page, for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    address: u64,
    bytes: u64,
}

impl Resource {
    /// The device address of the first byte; zero for a page of no bytes.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes the part has.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<D: Device> CachetteStorage<D> {
    /// Every page starts at a multiple of this many bytes.
    pub const ALIGNMENT: usize = 512;

    /// A storage whose pages are used by work in `stream`, which is a stream of `allocator`.
    #[must_use]
    pub fn new(allocator: Allocator<D>, stream: Stream<D>) -> Self {
        Self { allocator, stream, pages: HashMap::new(), deallocated: Vec::new(), bytes: 0 }
    }

    /// The allocator that the pages come from.
    #[must_use]
    pub const fn allocator(&self) -> &Allocator<D> {
        &self.allocator
    }

    /// The stream that the pages belong to.
    #[must_use]
    pub const fn stream(&self) -> &Stream<D> {
        &self.stream
    }
}

impl<D: Device> ComputeStorage for CachetteStorage<D> {
    type Resource = Resource;

    fn alignment(&self) -> usize {
        Self::ALIGNMENT
    }

    fn get(&mut self, handle: &StorageHandle) -> Result<Resource, IoError> {
        let page = self.pages.get(&handle.id).ok_or_else(|| not_found(handle, "has no page"))?;
        let (offset, bytes) = (handle.offset(), handle.size());
        if offset.checked_add(bytes).is_none_or(|end| end > page.requested()) {
            return Err(not_found(handle, "has a smaller page"));
        }
        Ok(Resource { address: page.address() + offset, bytes })
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let page = self.allocator.allocate(size, &self.stream).map_err(|error| io_error(&error, size))?;
        let id = StorageId::new();
        self.pages.insert(id, page);
        self.bytes += size;
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    fn dealloc(&mut self, id: StorageId) {
        self.deallocated.push(id);
    }

    fn flush(&mut self) {
        for id in self.deallocated.drain(..) {
            if let Some(page) = self.pages.remove(&id) {
                self.bytes -= page.requested();
            }
        }
    }

    fn bytes_allocated(&self) -> u64 {
        self.bytes
    }
}

impl<D: Device> fmt::Debug for CachetteStorage<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachetteStorage")
            .field("pages", &self.pages.len())
            .field("bytes", &self.bytes)
            .field("stream", &self.stream.handle())
            .finish_non_exhaustive()
    }
}

fn not_found(handle: &StorageHandle, why: &str) -> IoError {
    let (offset, size) = (handle.offset(), handle.size());
    let reason = format!("{}, {size} bytes at {offset}: Cachette's storage {why} for it", handle.id);
    IoError::StorageHandleNotFound { reason: reason.into(), backtrace: BackTrace::capture() }
}

fn io_error(error: &Error, size: u64) -> IoError {
    let backtrace = BackTrace::capture();
    match error {
        Error::OutOfMemory(_) => IoError::OutOfMemory { size, backtrace },
        Error::TooLarge { .. } => IoError::BufferTooBig { size, backtrace },
        Error::Device(failed) if failed.kind().stops_work() => DevicePoison::new(failed.to_string()).into(),
        other => IoError::Unknown { description: other.to_string(), backtrace },
    }
}

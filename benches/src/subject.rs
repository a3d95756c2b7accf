//! The allocators that workloads run on.

use cachette::{Allocation, Allocator, Error, PinnedAllocation, Stream};
use cachette_hal::StreamRef;

/// An allocator with numbered streams.
pub trait Subject: Sync {
    /// An allocation.
    type Memory: Send;

    /// Allocates `bytes` bytes for stream number `stream`.
    fn allocate(&self, bytes: u64, stream: usize) -> Result<Self::Memory, Error>;

    /// Frees memory.
    fn free(&self, memory: Self::Memory) -> Result<(), Error>;

    /// Allocates and frees at once.
    #[inline]
    fn pair(&self, bytes: u64, stream: usize) -> Result<(), Error> {
        let memory = self.allocate(bytes, stream)?;
        self.free(memory)
    }
}

/// An allocator used by way of [`Allocation`].
#[derive(Debug)]
pub struct Owned {
    allocator: Allocator,
    streams: Vec<Stream>,
}

impl Owned {
    /// Uses `allocator` on `streams` new streams.
    pub fn new(allocator: Allocator, streams: usize) -> Result<Self, Error> {
        let streams = create_streams(&allocator, streams)?;
        Ok(Self { allocator, streams })
    }

    /// The allocator.
    #[must_use]
    pub const fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Stream number `stream`.
    #[must_use]
    pub fn stream(&self, stream: usize) -> &Stream {
        &self.streams[stream]
    }
}

#[expect(clippy::inline_always, reason = "what is counted is the allocator, not a call around it")]
impl Subject for Owned {
    type Memory = Allocation;

    #[inline(always)]
    fn allocate(&self, bytes: u64, stream: usize) -> Result<Allocation, Error> {
        self.allocator.allocate(bytes, &self.streams[stream])
    }

    #[inline(always)]
    fn free(&self, memory: Allocation) -> Result<(), Error> {
        drop(memory);
        Ok(())
    }
}

/// An allocator used by address alone.
#[derive(Debug)]
pub struct Raw {
    allocator: Allocator,
    /// Streams of the allocator's own, which keep those of `handles` alive.
    #[expect(dead_code, reason = "held for what it keeps alive")]
    streams: Vec<Stream>,
    handles: Vec<StreamRef>,
}

impl Raw {
    /// Uses `allocator` on `streams` new streams.
    pub fn new(allocator: Allocator, streams: usize) -> Result<Self, Error> {
        let streams = create_streams(&allocator, streams)?;
        let handles = streams.iter().map(Stream::handle).collect();
        Ok(Self { allocator, streams, handles })
    }
}

#[expect(clippy::inline_always, reason = "what is counted is the allocator, not a call around it")]
impl Subject for Raw {
    type Memory = u64;

    #[inline(always)]
    fn allocate(&self, bytes: u64, stream: usize) -> Result<u64, Error> {
        // SAFETY: 1. the stream was created by this allocator. 2. `streams` keeps it alive as long as `self`,
        // and the allocator keeps its own streams as long as it lives.
        unsafe { self.allocator.allocate_raw(bytes, self.handles[stream]) }
    }

    #[inline(always)]
    fn free(&self, memory: u64) -> Result<(), Error> {
        self.allocator.free_raw(memory)
    }
}

/// The pinned host memory of an allocator, used by way of [`PinnedAllocation`]; no stream uses it.
#[derive(Debug)]
pub struct Pinned {
    allocator: Allocator,
}

impl Pinned {
    /// Uses the pinned memory of `allocator`.
    #[must_use]
    pub const fn new(allocator: Allocator) -> Self {
        Self { allocator }
    }
}

#[expect(clippy::inline_always, reason = "what is counted is the allocator, not a call around it")]
impl Subject for Pinned {
    type Memory = PinnedAllocation;

    #[inline(always)]
    fn allocate(&self, bytes: u64, _: usize) -> Result<PinnedAllocation, Error> {
        self.allocator.pinned().allocate(bytes)
    }

    #[inline(always)]
    fn free(&self, memory: PinnedAllocation) -> Result<(), Error> {
        drop(memory);
        Ok(())
    }
}

fn create_streams(allocator: &Allocator, count: usize) -> Result<Vec<Stream>, Error> {
    (0..count).map(|_| allocator.create_stream()).collect()
}

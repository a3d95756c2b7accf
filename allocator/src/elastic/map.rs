//! Mapping chunks at unmapped addresses: all of them or none.

use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, ErrorKind, VirtualMemory};

use crate::blocks::{Chunk, ChunkId};
use crate::device_state::DeviceState;
use crate::elastic::chunk_table::pointer;
use crate::size::SegmentKind;

/// An unmapped range that one chunk fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The idle chunk that is moved; `None` for a new chunk.
    pub(crate) spare: Option<ChunkId>,
}

impl Fill {
    /// The address after the last byte.
    pub(crate) const fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// A mapping that is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) chunk: Chunk,
    /// Whether this is the last mapping of the chunk, which ends with it.
    pub(crate) last: bool,
    /// Whether it is still mapped.
    pub(crate) mapped: bool,
}

/// Why the ranges were not filled.
#[derive(Debug)]
pub(crate) struct Unfilled {
    pub(crate) error: hal::Error,
    /// Mappings that the driver refused to remove. They are tried again later.
    pub(crate) left: Vec<Leftover>,
    /// The idle chunks that the driver refused to map a second time.
    pub(crate) refused: Vec<ChunkId>,
}

impl From<hal::Error> for Unfilled {
    fn from(error: hal::Error) -> Self {
        Self { error, left: Vec::new(), refused: Vec::new() }
    }
}

/// Fills every range of `fills`, in order of address, for a request of one kind. Returns the chunks at their new
/// addresses.
///
/// A failure changes nothing except what the error lists.
pub(crate) fn fill<D: Device>(
    shared: &DeviceState<D>,
    fills: &[Fill],
    kind: SegmentKind,
) -> Result<Vec<Chunk>, Unfilled> {
    let memory = shared.device.virtual_memory().map_err(hal::Error::from)?;
    let rdma = shared.settings.rdma.load(Relaxed);
    let mut done: Vec<Leftover> = Vec::with_capacity(fills.len());
    // The ranges that the current driver call maps.
    let mut current: &[Fill] = &[];
    let mut fill_all = || -> hal::Result<()> {
        for fill in fills {
            current = &[];
            let id = fill.spare.map_or_else(|| shared.chunks.create(memory, fill.bytes, rdma), Ok)?;
            let chunk = Chunk { id, at: fill.at, bytes: fill.bytes, kind };
            current = slice::from_ref(fill);
            let mapped = shared.chunks.map(memory, chunk);
            done.push(Leftover { chunk, last: fill.spare.is_none(), mapped: mapped.is_ok() });
            mapped?;
        }
        let access = shared.access();
        for range in fills.chunk_by(|a, b| a.end() == b.at) {
            current = range;
            let bytes = range[range.len() - 1].end() - range[0].at;
            // SAFETY: 2. the call grants access and removes none.
            unsafe { memory.set_access(pointer(range[0].at)?, bytes, &access) }?;
        }
        Ok(())
    };
    let Err(error) = fill_all() else { return Ok(done.into_iter().map(|left| left.chunk).collect()) };
    let left = done.into_iter().rev().filter_map(|mut left| {
        // SAFETY: 1. no other code has these addresses yet.
        let cleared = unsafe { clear(shared, memory, &mut left) };
        cleared.err().map(|_| left)
    });
    let left = left.collect();
    let refused = current.iter().filter(|_| error.kind() == ErrorKind::Unsupported);
    Err(Unfilled { error, left, refused: refused.filter_map(|fill| fill.spare).collect() })
}

/// Removes a mapping that is no longer needed, and destroys its chunk if this was the last mapping. Returns the bytes
/// that became free. After a failure `left` describes the remaining work.
///
/// # Safety
///
/// 1. All work that uses the addresses has finished, and no caller receives them before they are filled again.
pub(crate) unsafe fn clear<D: Device>(
    shared: &DeviceState<D>,
    memory: &dyn VirtualMemory,
    left: &mut Leftover,
) -> hal::Result<u64> {
    if left.mapped {
        // SAFETY: 2. no work uses the addresses any more: the caller's promise 1.
        unsafe { memory.unmap(pointer(left.chunk.at)?, left.chunk.bytes) }?;
        left.mapped = false;
    }
    if left.last { shared.chunks.destroy(memory, left.chunk.id) } else { Ok(0) }
}

//! Mapping chunks at unmapped addresses: all of them or none.

use std::slice;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind, VirtualMemory};

use crate::blocks::{Chunk, ChunkId};
use crate::device_state::DeviceState;
use crate::elastic::chunk_table::memory_of;
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

/// A mapping that is no longer needed, with its chunk if this is the chunk's last mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) chunk: Option<ChunkId>,
    /// The kind of request that the chunk was mapped for.
    pub(crate) kind: SegmentKind,
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

/// The call that failed, and the ranges that it was for.
struct Stopped<'a> {
    error: hal::Error,
    fills: &'a [Fill],
}

impl From<hal::Error> for Stopped<'_> {
    fn from(error: hal::Error) -> Self {
        Self { error, fills: &[] }
    }
}

impl Stopped<'_> {
    /// The idle chunks that the driver refused to map a second time.
    fn refused(&self) -> Vec<ChunkId> {
        let refused = self.error.kind() == ErrorKind::Unsupported;
        let fills = self.fills.iter().filter(|_| refused);
        fills.filter_map(|fill| fill.spare).collect()
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
    let memory = memory_of(&shared.device)?;
    let mut done: Vec<Leftover> = Vec::with_capacity(fills.len());
    match fill_each(shared, memory, fills, kind, &mut done) {
        Ok(chunks) => Ok(chunks),
        Err(stopped) => {
            let left = done.into_iter().rev().filter_map(|left| {
                let mut left = left;
                // SAFETY: 1. no other code has these addresses yet.
                let cleared = unsafe { clear(shared, memory, &mut left) };
                cleared.err().map(|_| left)
            });
            Err(Unfilled { error: stopped.error, left: left.collect(), refused: stopped.refused() })
        }
    }
}

fn fill_each<'a, D: Device>(
    shared: &DeviceState<D>,
    memory: &dyn VirtualMemory,
    fills: &'a [Fill],
    kind: SegmentKind,
    done: &mut Vec<Leftover>,
) -> Result<Vec<Chunk>, Stopped<'a>> {
    let stopped = |fills: &'a [Fill]| move |error| Stopped { error, fills };
    let mut chunks = Vec::with_capacity(fills.len());
    for fill in fills {
        let id = match fill.spare {
            Some(id) => id,
            None => shared.chunks.create(memory, fill.bytes)?,
        };
        done.push(Leftover {
            at: fill.at,
            bytes: fill.bytes,
            chunk: fill.spare.is_none().then_some(id),
            kind,
            mapped: false,
        });
        let mapped = shared.chunks.map(memory, id, pointer(fill.at)?);
        mapped.map_err(stopped(slice::from_ref(fill)))?;
        if let Some(last) = done.last_mut() {
            last.mapped = true;
        }
        chunks.push(Chunk { id, at: fill.at, bytes: fill.bytes, kind });
    }
    let access = shared.access();
    for range in fills.chunk_by(|a, b| a.end() == b.at) {
        let (start, bytes) = (range[0].at, range[range.len() - 1].end() - range[0].at);
        // SAFETY: 2. the call grants access and removes none.
        let set = unsafe { memory.set_access(pointer(start)?, bytes, &access) };
        set.map_err(stopped(range))?;
    }
    Ok(chunks)
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
        unsafe { memory.unmap(pointer(left.at)?, left.bytes) }?;
        left.mapped = false;
    }
    let Some(id) = left.chunk else { return Ok(0) };
    let bytes = shared.chunks.destroy(memory, id)?;
    left.chunk = None;
    Ok(bytes)
}

fn pointer(address: u64) -> hal::Result<DevicePtr> {
    DevicePtr::new(address).ok_or(hal::Error::new(ErrorKind::InvalidValue, "map"))
}

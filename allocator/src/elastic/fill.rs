//! Filling holes with chunks on the device, wholly or not at all.

use std::slice;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind, VirtualMemory};

use crate::blocks::{Chunk, ChunkId};
use crate::device_state::DeviceState;
use crate::elastic::chunk_table::memory_of;
use crate::size::SegmentKind;

/// A hole to be filled with one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The spare chunk that serves; a new one if there is none.
    pub(crate) spare: Option<ChunkId>,
}

impl Fill {
    /// The address after the last byte.
    pub(crate) const fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// A mapping that nothing needs any more, and the chunk that goes with it, if it is the last of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) chunk: Option<ChunkId>,
    /// What the chunk was mapped for.
    pub(crate) kind: SegmentKind,
    /// Whether it is still mapped.
    pub(crate) mapped: bool,
}

/// Why holes were not filled.
#[derive(Debug)]
pub(crate) struct Unfilled {
    pub(crate) error: hal::Error,
    /// What the driver would not take back, to be tried again later.
    pub(crate) left: Vec<Leftover>,
    /// The spare chunks that the driver would not map a second time.
    pub(crate) refused: Vec<ChunkId>,
}

impl From<hal::Error> for Unfilled {
    fn from(error: hal::Error) -> Self {
        Self { error, left: Vec::new(), refused: Vec::new() }
    }
}

/// The call that failed, and the holes that it was for.
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
    /// The spare chunks that the driver would not map a second time.
    fn refused(&self) -> Vec<ChunkId> {
        let refused = self.error.kind() == ErrorKind::Unsupported;
        let fills = self.fills.iter().filter(|_| refused);
        fills.filter_map(|fill| fill.spare).collect()
    }
}

/// Fills every hole of `fills`, which are in order of address, for a request of a kind; the chunks as they lie then.
///
/// After a failure nothing has changed, but for what the error names.
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
                // SAFETY: 1. nobody was told of these addresses yet.
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
        // SAFETY: 2. a right is given, not taken away.
        let set = unsafe { memory.set_access(pointer(start)?, bytes, &access) };
        set.map_err(stopped(range))?;
    }
    Ok(chunks)
}

/// Unmaps what nothing needs any more, and gives its chunk back if it was the last mapping; the bytes that came
/// free. After a failure it says what is still to be done.
///
/// # Safety
///
/// 1. Whoever used the addresses is done with them, and nobody gets to know them again before they are filled
///    anew.
pub(crate) unsafe fn clear<D: Device>(
    shared: &DeviceState<D>,
    memory: &dyn VirtualMemory,
    left: &mut Leftover,
) -> hal::Result<u64> {
    if left.mapped {
        // SAFETY: 2. nobody uses the addresses any more: the caller's promise 1.
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

//! Mapping chunks at unmapped addresses: all of them or none, by one request at a time.

use std::panic::{self, AssertUnwindSafe};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cachette_hal::{self as hal, Access, Device, DevicePtr, ErrorKind, VirtualMemory};

use crate::blocks::{BlockId, Chunk, ChunkId};
use crate::device_state::DeviceState;
use crate::elastic::chunk_table::pointer;
use crate::fence::Fence;
use crate::observe::callbacks::{CallbackOutcome, Callbacks, Notice};
use crate::size::SegmentKind;
use crate::sync::{Mutex, RwLock};

/// An unmapped range that one chunk fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The idle chunk that is moved; `None` for a new chunk.
    pub(crate) reused: Option<ChunkId>,
}

impl Fill {
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
pub(crate) struct Unfilled {
    pub(crate) error: hal::Error,
    /// Mappings that the driver refused to remove. They are tried again later.
    pub(crate) left: Vec<Leftover>,
    /// The idle chunks that the driver refused to map a second time.
    pub(crate) refused: Vec<ChunkId>,
    /// Whether a map failed, rather than the creation of a chunk or its access.
    pub(crate) map_failed: bool,
    /// The idle chunks that were unmapped and that the driver refused to map back, at their old addresses.
    pub(crate) lost: Vec<Leftover>,
}

impl From<hal::Error> for Unfilled {
    fn from(error: hal::Error) -> Self {
        Self { error, left: Vec::new(), refused: Vec::new(), map_failed: false, lost: Vec::new() }
    }
}

pub(crate) struct Filled {
    /// The chunks at their new addresses.
    pub(crate) chunks: Vec<Chunk>,
    /// The old places of the chunks that were unmapped before they moved.
    pub(crate) vacated: Vec<Chunk>,
}

/// Fills every range of `fills`, in order of address, for a request of one kind. Network cards may access `registered`
/// memory.
///
/// If the driver refuses a second mapping of an idle chunk, `vacate` is asked for its old place. It returns the place
/// only if all work that uses it has finished. The chunk is then unmapped there before it is mapped again.
///
/// A failure changes nothing except what the error lists.
pub(crate) fn fill<D: Device>(
    shared: &DeviceState<D>,
    fills: &[Fill],
    kind: SegmentKind,
    registered: bool,
    vacate: impl Fn(ChunkId) -> Option<Chunk>,
) -> Result<Filled, Unfilled> {
    let memory = shared.device.virtual_memory().map_err(hal::Error::from)?;
    let rdma = registered || shared.settings.config().gpu_direct_rdma();
    let mut done: Vec<Leftover> = Vec::with_capacity(fills.len());
    let mut vacated: Vec<Chunk> = Vec::new();
    let access = shared.access();
    // The ranges that the current driver call maps.
    let mut current: &[Fill] = &[];
    let mut fill_all = || -> hal::Result<()> {
        for fill in fills {
            current = &[];
            let id = fill.reused.map_or_else(|| shared.chunks.create(memory, fill.bytes, rdma), Ok)?;
            let chunk = Chunk { id, at: fill.at, bytes: fill.bytes, kind };
            current = slice::from_ref(fill);
            let mut mapped = if fill.reused.is_some_and(|id| shared.chunks.is_single(id)) {
                Err(hal::Error::new(ErrorKind::Unsupported, "map"))
            } else {
                shared.chunks.map(memory, chunk)
            };
            if mapped.is_err_and(|error| error.kind() == ErrorKind::Unsupported)
                && let Some(old) = fill.reused.and_then(&vacate)
            {
                shared.chunks.set_single(id);
                shared.callbacks.notice(Notice::Unmapping { address: old.at, bytes: old.bytes });
                // SAFETY: 2. no work uses the addresses any more: `vacate` returned them.
                unsafe { memory.unmap(pointer(old.at)?, old.bytes) }?;
                vacated.push(old);
                mapped = shared.chunks.map(memory, chunk);
            }
            done.push(Leftover { chunk, last: fill.reused.is_none(), mapped: mapped.is_ok() });
            mapped?;
        }
        for range in fills.chunk_by(|a, b| a.end() == b.at) {
            current = range;
            let bytes = range[range.len() - 1].end() - range[0].at;
            // SAFETY: 2. the call grants access and removes none.
            unsafe { memory.set_access(pointer(range[0].at)?, bytes, &access) }?;
            shared.callbacks.notice(Notice::Mapped { address: range[0].at, bytes });
        }
        Ok(())
    };
    let Err(error) = fill_all() else {
        return Ok(Filled { chunks: done.into_iter().map(|left| left.chunk).collect(), vacated });
    };
    let map_failed = done.iter().any(|left| !left.mapped);
    let left = done.into_iter().rev().filter_map(|mut left| {
        // SAFETY: 1. no other code has these addresses yet.
        let cleared = unsafe { clear(shared, memory, &mut left) };
        cleared.err().map(|_| left)
    });
    let left = left.collect();
    let lost = vacated.into_iter().filter_map(|old| map_back(shared, memory, old, &access).err()).collect();
    let refused = current.iter().filter(|_| error.kind() == ErrorKind::Unsupported);
    Err(Unfilled { error, left, refused: refused.filter_map(|fill| fill.reused).collect(), map_failed, lost })
}

/// Maps a chunk at its old place again. After a failure the chunk must end; the error says whether it is mapped.
fn map_back<D: Device>(
    shared: &DeviceState<D>,
    memory: &dyn VirtualMemory,
    old: Chunk,
    access: &[Access],
) -> Result<(), Leftover> {
    let lost = |mapped| Leftover { chunk: old, last: true, mapped };
    shared.chunks.map(memory, old).map_err(|_| lost(false))?;
    let at = pointer(old.at).map_err(|_| lost(true))?;
    // SAFETY: 2. the call grants access and removes none.
    unsafe { memory.set_access(at, old.bytes, access) }.map_err(|_| lost(true))?;
    shared.callbacks.notice(Notice::Mapped { address: old.at, bytes: old.bytes });
    Ok(())
}

/// Removes a mapping; the last one of a chunk destroys it. Returns the freed bytes. A failure updates `left`.
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
        shared.callbacks.notice(Notice::Unmapping { address: left.chunk.at, bytes: left.chunk.bytes });
        // SAFETY: 2. no work uses the addresses any more: the caller's promise 1.
        unsafe { memory.unmap(pointer(left.chunk.at)?, left.chunk.bytes) }?;
        left.mapped = false;
    }
    if left.last { shared.chunks.destroy(memory, left.chunk.id) } else { Ok(0) }
}

/// The state of an elastic heap besides its blocks.
pub(crate) struct ElasticState<D: Device> {
    pub(crate) ranges: Mutex<Vec<(DevicePtr, u64)>>,
    /// The closed ranges without memory that the driver refused to release.
    pub(crate) unused_ranges: Mutex<Vec<(DevicePtr, u64)>>,
    pub(crate) pending_unmaps: Mutex<Vec<PendingUnmap<D>>>,
    /// Locked for reading by every thread that moves or releases chunks. During that time neither the heap's blocks nor
    /// its address lists contain these chunks. A pool locks it for writing before it sleeps, to wait for them.
    pub(crate) moves: RwLock<()>,
    /// Bytes of chunks that have no memory because their pool sleeps; changed under the heap's lock.
    pub(crate) slept: AtomicU64,
}

impl<D: Device> Default for ElasticState<D> {
    fn default() -> Self {
        Self {
            ranges: Mutex::default(),
            unused_ranges: Mutex::default(),
            pending_unmaps: Mutex::default(),
            moves: RwLock::default(),
            slept: AtomicU64::new(0),
        }
    }
}

/// Addresses whose chunk has moved or is being released, still mapped.
pub(crate) struct PendingUnmap<D: Device> {
    pub(crate) block: BlockId,
    pub(crate) left: Vec<Leftover>,
    /// The fences that must pass before the addresses are unmapped.
    pub(crate) fences: Vec<Arc<Fence<D>>>,
}

/// Runs `act` as the one request that plans and maps memory, and tells its events afterwards. Hits do not wait for it.
pub(crate) fn in_turn<D: Device, T>(shared: &DeviceState<D>, act: impl FnOnce() -> T) -> (T, CallbackOutcome) {
    let turn = shared.chunks.turns.lock();
    Callbacks::postpone();
    let done = panic::catch_unwind(AssertUnwindSafe(act));
    drop(turn);
    let told = shared.callbacks.tell_postponed();
    (done.unwrap_or_else(|panic| panic::resume_unwind(panic)), told)
}

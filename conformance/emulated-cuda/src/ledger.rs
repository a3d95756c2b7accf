//! What the C interface leaves out of its handles: sizes and owners.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachette_emulated::Recordings;
use cachette_hal::{Backing, Guarded};

use crate::prelude::*;

const FIRST_HANDLE: usize = 0x1000;

/// Everything that was given out and has a size or an owner.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Device memory by its start.
    pub(crate) ranges: Guarded<BTreeMap<u64, Range>>,
    /// Physical memory by its handle.
    pub(crate) backings: Guarded<BTreeMap<u64, Physical>>,
    pub(crate) recordings: Guarded<Recordings>,
    /// Handles of the streams whose capture is being ended.
    pub(crate) ending: Guarded<BTreeSet<usize>>,
    pub(crate) launching: Guarded<BTreeSet<usize>>,
    /// Contexts that the program made, by handle, with the indices of their devices.
    pub(crate) contexts: Guarded<BTreeMap<usize, usize>>,
    /// Streams of such contexts.
    pub(crate) context_of: Guarded<BTreeMap<usize, usize>>,
    pub(crate) priorities: Guarded<BTreeMap<usize, c_int>>,
    pub(crate) tokens: Guarded<BTreeSet<[u8; 64]>>,
    /// Pairs of devices, the first of which reaches the second.
    pub(crate) reached: Guarded<BTreeSet<(usize, usize)>>,
    handles: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) bytes: u64,
    /// Handle of the physical memory, where it is a mapping.
    pub(crate) backing: Option<u64>,
    /// Index of its device.
    pub(crate) unit: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub(crate) bytes: u64,
    /// How often the handle must be released.
    pub(crate) holders: u32,
    /// Whether the device beneath still knows the handle; a mapping may outlive that.
    pub(crate) is_live: bool,
    /// Index of its device.
    pub(crate) unit: usize,
}

impl Physical {
    /// The contract's handle, for a call that borrows it or takes it for good.
    pub(crate) fn backing(self, handle: usize) -> Backing {
        Backing::from_raw(handle, self.bytes)
    }
}

impl Ledger {
    /// The memory that holds an address, with its start.
    pub(crate) fn range_of(&self, at: u64) -> Option<(u64, Range)> {
        let ranges = self.ranges.lock();
        let (start, range) = ranges.range(..=at).next_back()?;
        (at - start < range.bytes).then_some((*start, *range))
    }

    /// Takes the memory at an address out, gives it back by `act`, and puts it in again if that fails.
    ///
    /// It is taken out first, for others may be given the same address before the call returns.
    pub(crate) fn give_back(&self, at: u64, act: impl FnOnce(Range) -> Answer) -> Answer {
        let range = self.ranges.lock().remove(&at).ok_or(INVALID_VALUE)?;
        act(range).inspect_err(|_| {
            self.ranges.lock().insert(at, range);
        })
    }

    /// A handle that nothing has.
    pub(crate) fn next_handle(&self) -> usize {
        // Relaxed: only that no two calls get the same matters.
        FIRST_HANDLE + self.handles.fetch_add(1, Ordering::Relaxed)
    }
}

//! The reserve segment: pinned memory made in one piece up front, from which blocks are cut one after the other.

use std::ptr::NonNull;

use super::memory::{PAGE, PinnedMemory};

/// The reserve segment, if it has been made. Its blocks are used again, and given back with the segment alone.
#[derive(Debug, Default)]
pub(super) struct PinnedReserve {
    segment: Option<(PinnedMemory, usize)>,
    /// Bytes that were cut off; a multiple of [`PAGE`].
    used: usize,
}

impl PinnedReserve {
    pub(super) const fn is_made(&self) -> bool {
        self.segment.is_some()
    }

    /// Takes over a segment of `bytes` bytes.
    pub(super) const fn fill(&mut self, segment: PinnedMemory, bytes: usize) {
        self.segment = Some((segment, bytes));
    }

    /// Cuts a block off, if there is room for one.
    pub(super) fn cut(&mut self, bytes: usize) -> Option<PinnedMemory> {
        let (segment, len) = self.segment?;
        let step = bytes.checked_next_multiple_of(PAGE)?;
        if step > len - self.used {
            return None;
        }
        let ptr = NonNull::new(segment.ptr.as_ptr().wrapping_add(self.used))?;
        self.used += step;
        Some(PinnedMemory::of_reserve(ptr))
    }

    /// Gives the segment up.
    pub(super) fn take(&mut self) -> Option<PinnedMemory> {
        self.segment.take().map(|(segment, _)| segment)
    }
}

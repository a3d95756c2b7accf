//! The errors of calls on a growable allocation, each with its remedy.

use crate::human::Bytes;

/// The most addresses of one allocation, which are those of one segment.
pub(super) const MOST_BYTES: u64 = 1 << 40;

/// Why a call on a growable allocation failed. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrowableProblem {
    /// The allocation would have too many addresses.
    #[error("{} of addresses are too many; an allocation has at most {}", Bytes(*bytes), Bytes(MOST_BYTES))]
    TooLarge {
        /// The requested bytes.
        bytes: u64,
    },
    /// The range ends beyond the addresses, or before it begins.
    #[error(
        "the range {start}..{end} is not within its {bytes} bytes; give offsets from the first byte to the one after the last"
    )]
    OutOfRange {
        /// The first offset.
        start: u64,
        /// The offset after the last.
        end: u64,
        /// The bytes of the addresses.
        bytes: u64,
    },
    /// A byte of the range has memory already.
    #[error("byte {at} is committed already; decommit it first, or commit the rest only")]
    Committed {
        /// Its offset.
        at: u64,
    },
    /// A byte of the range has no memory.
    #[error("byte {at} is not committed; decommit what was committed")]
    NotCommitted {
        /// Its offset.
        at: u64,
    },
    /// This thread is committing memory to one of the pages, in a call that runs this callback.
    #[error("a commit of these pages is under way on this thread; change them after it, and other pages now")]
    Changing,
    /// The stream is captured, so its order is not known.
    #[error("its stream is captured; decommit after the capture")]
    Captured,
    /// Another process uses memory of the range.
    #[error("memory of the range is shared with other processes; drop the exports, and close the imports")]
    Exported,
}

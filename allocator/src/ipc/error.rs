//! Why memory cannot be shared or opened.

#![forbid(unsafe_code)]

use std::io;

use cachette_hal::{self as hal, Vendor};
use cachette_ipc::OpenError;

/// Why memory cannot be shared or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IpcError {
    /// The allocation has no bytes.
    #[error("the allocation has no bytes; share one that has some")]
    Empty,
    /// The memory was allocated without the cache.
    #[error("the memory was allocated without the cache, which keeps it for no other process; share cached memory")]
    Uncached,
    /// The driver cannot export chunks to other processes.
    #[error(
        "the driver makes no chunks here that other processes can open; allocate the memory with \
         expandable_segments:False"
    )]
    PrivateChunks,
    /// The driver cannot export the memory by a token.
    #[error(
        "the driver gives this memory no token ({0}); it may come from a pool's source: share memory of the device"
    )]
    NoToken(
        /// The driver's error.
        hal::Error,
    ),
    /// The thread that serves other processes could not start.
    #[error("the operating system refused to begin to share memory: {0}")]
    Start(
        /// The reason.
        String,
    ),
    /// The memory is on a device of another vendor.
    #[error(
        "the memory is on a device of another vendor than this allocator's ({here}); open it on one of the same vendor"
    )]
    OtherVendor {
        /// The vendor of this allocator's device.
        here: Vendor,
    },
    /// The memory is on another device.
    #[error(
        "the memory is on another device of this vendor; open it with an allocator for that one, and let peers \
         reach it with allow_peer"
    )]
    OtherDevice,
    /// The handle is invalid, or the exporter did not transfer the memory.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<io::Error> for IpcError {
    fn from(error: io::Error) -> Self {
        Self::Start(error.to_string())
    }
}

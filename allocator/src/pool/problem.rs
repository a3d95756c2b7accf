//! The errors of calls on a pool, each with its remedy.

use crate::human::Bytes;

/// What is wrong with what was asked of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolProblem {
    /// There is no such pool.
    #[error("there is no such pool, or it is gone; create one")]
    Unknown,
    /// There is one of that name already.
    #[error("there is a pool of that name already; open it instead")]
    Exists,
    /// Requests are led to it already.
    #[error("requests are led to it already; end that first")]
    Begun,
    /// No requests are led to it.
    #[error("no requests are led to it; begin that first")]
    NotBegun,
    /// The state is another pool's.
    #[error("the state was saved of another pool; restore it there")]
    Foreign,
    /// A block waits for another stream.
    #[error("the block at {address:#x} waits for another stream; synchronize that first")]
    Waiting {
        /// Where it is.
        address: u64,
    },
    /// A block has an owner that the saved state does not know.
    #[error("the allocation at {address:#x} has an owner and is not in the saved state; drop it first")]
    Owned {
        /// Where it is.
        address: u64,
    },
    /// Memory that was saved is not there any more.
    #[error("there is no memory of the pool at {address:#x} any more; the saved state cannot be restored")]
    Changed {
        /// Where it was.
        address: u64,
    },
    /// The pool sleeps.
    #[error("the pool sleeps; wake it first")]
    Asleep,
    /// A callback for the pool's progress or events called back into the pool.
    #[error("this thread lets the pool fall asleep or wake; do this after that call has returned")]
    Changing,
    /// A pool with segments of the device's own cannot sleep.
    #[error("addresses can be kept only in elastic segments; set expandable_segments:True before the pool is used")]
    NotElastic,
    /// A stream of the pool is captured.
    #[error("a stream that uses the pool is captured; end the capture first")]
    Captured,
    /// Other processes may have memory of the pool.
    #[error("memory of it is shared with other processes; drop what shares it, and let them close it")]
    Offered,
    /// The host has no memory for the contents.
    #[error("the host has too little memory for its contents; free some, or let them be dropped")]
    NoHostMemory,
    /// The device has no memory to wake the pool with.
    #[error("there is no memory for its {}; free some, and wake it then", Bytes(*bytes))]
    NoMemory {
        /// Bytes that it needs.
        bytes: u64,
    },
    /// No pool has the tag.
    #[error("no pool has this tag; make one with PoolOptions::tag")]
    NoTag,
    /// The default stream cannot be captured.
    #[error("the default stream cannot be captured; capture one that was created")]
    DefaultStream,
}

//! The errors of calls on a pool, each with its remedy.

use crate::human::Bytes;

/// Why a call on a pool failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolProblem {
    /// The pool does not exist.
    #[error("there is no such pool, or it is gone; create one")]
    Unknown,
    /// A pool with this id already exists.
    #[error("there is a pool of that name already; open it instead")]
    Exists,
    /// A route to the pool already exists.
    #[error("requests are led to it already; end that first")]
    Begun,
    /// No route to the pool exists.
    #[error("no requests are led to it; begin that first")]
    NotBegun,
    /// The checkpoint belongs to another pool.
    #[error("the state was saved of another pool; restore it there")]
    Foreign,
    /// A block is pending: another stream still uses it.
    #[error("the block at {address:#x} waits for another stream; synchronize that first")]
    Waiting {
        /// The address of the block.
        address: u64,
    },
    /// A block has an owner that the checkpoint does not contain.
    #[error("the allocation at {address:#x} has an owner and is not in the saved state; drop it first")]
    Owned {
        /// The address of the block.
        address: u64,
    },
    /// Saved memory no longer exists.
    #[error("there is no memory of the pool at {address:#x} any more; the saved state cannot be restored")]
    Changed {
        /// The saved address.
        address: u64,
    },
    /// The pool sleeps.
    #[error("the pool sleeps; wake it first")]
    Asleep,
    /// A progress callback or a tracker of the pool called the pool.
    #[error("this thread lets the pool fall asleep or wake; do this after that call has returned")]
    Changing,
    /// A pool with direct segments cannot sleep.
    #[error("addresses can be kept only in elastic segments; set expandable_segments:True before the pool is used")]
    NotElastic,
    /// A stream of the pool is captured.
    #[error("a stream that uses the pool is captured; end the capture first")]
    Captured,
    /// Memory of the pool is shared with other processes.
    #[error("memory of it is shared with other processes; drop what shares it, and let them close it")]
    Offered,
    /// The host has too little memory for the contents.
    #[error("the host has too little memory for its contents; free some, or let them be dropped")]
    NoHostMemory,
    /// The device has too little memory to wake the pool.
    #[error("there is no memory for its {}; free some, and wake it then", Bytes(*bytes))]
    NoMemory {
        /// The bytes that the pool needs.
        bytes: u64,
    },
    /// No pool has the tag.
    #[error("no pool has this tag; create one with it first")]
    NoTag,
    /// The default stream cannot be captured.
    #[error("the default stream cannot be captured; capture one that was created")]
    DefaultStream,
}

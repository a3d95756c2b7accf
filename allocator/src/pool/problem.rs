//! The errors of calls on a pool, each with its remedy.

use std::io;

use crate::human::Bytes;

/// Why a call on a pool failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolProblem {
    /// The pool does not exist.
    #[error("no such pool, or it was released; create one")]
    Unknown,
    /// A pool with this id already exists.
    #[error("a pool with this id exists; use open_pool")]
    Exists,
    /// A route to the pool already exists.
    #[error("a route to this pool already exists; call end_allocate_to_pool first")]
    Begun,
    /// No route to the pool exists.
    #[error("no route to this pool exists; call begin_allocate_to_pool first")]
    NotBegun,
    /// The checkpoint belongs to another pool.
    #[error("the checkpoint belongs to another pool; restore it there")]
    Foreign,
    /// A block is pending: another stream still uses it.
    #[error("the block at {address:#x} is still used by another stream; synchronize that stream first")]
    Waiting {
        /// The address of the block.
        address: u64,
    },
    /// A block has an owner that the checkpoint does not contain.
    #[error("the allocation at {address:#x} has an owner and is not in the checkpoint; drop it first")]
    Owned {
        /// The address of the block.
        address: u64,
    },
    /// Saved memory no longer exists.
    #[error("the memory at {address:#x} was released; the checkpoint cannot be restored")]
    Changed {
        /// The saved address.
        address: u64,
    },
    /// The pool sleeps.
    #[error("the pool sleeps; wake it first, by wake or make_resident")]
    Asleep,
    /// The pool does not sleep, so it keeps no contents.
    #[error("the pool is awake, and its contents are in its memory; put it to sleep first")]
    Awake,
    /// The file of its contents could not be written or read, was cut or was changed.
    #[error(
        "the file with its contents failed: {kind}; free room in its folder, or free the memory if the file is lost"
    )]
    File {
        /// The error. `InvalidData` is a wrong checksum.
        kind: io::ErrorKind,
    },
    /// The memory of the pool may be registered.
    #[error("its memory may be registered with network cards; set before_sleep, which ends that, to let it sleep")]
    Registered,
    /// A guard keeps the pool on the device.
    #[error("a guard of make_resident keeps the pool on the device; drop it first")]
    Resident,
    /// A progress callback or a tracker of the pool called the pool.
    #[error("sleep or wake of this pool is running on this thread; call it again after that returns")]
    Changing,
    /// A pool with direct segments cannot sleep.
    #[error("only elastic segments keep their addresses; set expandable_segments:True before the pool is used")]
    NotElastic,
    /// A stream of the pool is captured.
    #[error("a stream that uses the pool is captured; end the capture first")]
    Captured,
    /// Memory of the pool is shared with other processes.
    #[error("its memory is shared with other processes; drop the exports, and close the imports")]
    Offered,
    /// A block serves a request of the default pool.
    #[error("its memory at {address:#x} serves a request of the default pool (use_on_oom); free that first")]
    Lent {
        /// The address of the block.
        address: u64,
    },
    /// The host has too little memory for the contents.
    #[error("the host has too little memory for its contents; free host memory, or use Contents::Discard")]
    NoHostMemory,
    /// The device has too little memory to wake the pool.
    #[error("no memory for its {}; free device memory, then wake it again", Bytes(*bytes))]
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

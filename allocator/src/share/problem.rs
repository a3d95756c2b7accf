//! Why memory cannot be shared, or not be opened.

#![forbid(unsafe_code)]

use cachette_hal::Vendor;

/// Why memory cannot be shared, or not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareProblem {
    /// There are no bytes to share.
    #[error("the allocation has no bytes; share one that has some")]
    Empty,
    /// The memory came past the cache.
    #[error("the memory came past the cache, which nobody keeps for others; share memory that was cached")]
    PastCache,
    /// The driver makes no memory that can leave the process.
    #[error(
        "the driver makes no chunks here that other processes can be given; allocate it with \
         expandable_segments:False"
    )]
    PrivateChunks,
    /// The memory has no token.
    #[error(
        "the driver gives this memory no token ({0}); it may have come from a pool's own source: share memory of \
         the device"
    )]
    NoToken(
        /// What the driver said.
        cachette_hal::Error,
    ),
    /// The bytes are no handle.
    #[error("these bytes are no handle of shared memory; pass what SharedMemory::handle gave")]
    NotAHandle,
    /// Bytes are missing from a handle, or there are too many.
    #[error(
        "the handle has {given} bytes and should have {whole}; pass all of what SharedMemory::handle gave, and no more"
    )]
    WrongLength {
        /// Bytes given.
        given: usize,
        /// Bytes of a whole handle.
        whole: usize,
    },
    /// A handle was changed on its way.
    #[error("the handle was changed on its way; pass what SharedMemory::handle gave, byte by byte")]
    Damaged,
    /// A handle was made by a newer Cachette.
    #[error("the handle is of the future version {version}, and this one reads up to {known}; update the reader")]
    FutureVersion {
        /// Its version.
        version: u8,
        /// The newest that is known here.
        known: u8,
    },
    /// A handle was made by an older Cachette.
    #[error(
        "the handle is of the past version {version}, and this one reads {known}; update the process that shared \
         the memory"
    )]
    PastVersion {
        /// Its version.
        version: u8,
        /// The one that is known here.
        known: u8,
    },
    /// The memory is another vendor's.
    #[error(
        "the memory is on a device of another kind than this allocator's ({here}); open it on one of the same kind"
    )]
    OtherVendor {
        /// Whose device this allocator has.
        here: Vendor,
    },
    /// The memory is on another device.
    #[error(
        "the memory is on another device of this kind; open it with an allocator for that one, and let peers \
         reach it with allow_peer"
    )]
    OtherDevice,
    /// The process that shared the memory is gone.
    #[error(
        "process {pid}, which shared the memory, has ended or has closed its allocator, or cannot be reached \
         from here; keep it running until all have opened the memory"
    )]
    Gone {
        /// Its number, as it knows itself.
        pid: u32,
    },
    /// The process that shared the memory has no name here, and its door cannot be fetched.
    #[error(
        "process {pid}, which shared the memory, cannot be reached, if it still runs: {why}; let both see the same \
         network namespace, or let this process fetch descriptors of the other, for which it needs the right to trace \
         it (the same user and kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE) and the system calls pidfd_open and \
         pidfd_getfd (Linux 5.6, and a seccomp profile that allows them)"
    )]
    OutOfReach {
        /// Its number, as it knows itself.
        pid: u32,
        /// Why neither way leads there.
        why: String,
    },
    /// The environment allows a way that there is not.
    #[error("CACHETTE_SHARE_BY is {given:?}; set it to name or to pidfd, or unset it for whichever works")]
    UnknownWay {
        /// What it says.
        given: String,
    },
    /// The memory is not shared any more, or never was under this key.
    #[error("process {pid} does not share this any more; keep what Allocator::share gave until all have opened it")]
    Withdrawn {
        /// Its number, as it knows itself.
        pid: u32,
    },
    /// The memory is another user's.
    #[error("process {pid} belongs to another user; only processes of one user share memory")]
    OtherUser {
        /// Its number, as it knows itself.
        pid: u32,
    },
    /// The process that shared the memory has no descriptors left.
    #[error(
        "process {pid}, which shared the memory, has no descriptors left for another reader; close what was opened \
         of it, or raise its limit of open files"
    )]
    Full {
        /// Its number, as it knows itself.
        pid: u32,
    },
    /// The process that shared the memory does not answer.
    #[error("process {pid}, which shared the memory, does not answer; it may be stopped")]
    NoAnswer {
        /// Its number, as it knows itself.
        pid: u32,
    },
    /// The process that shared the memory answered something else than was asked.
    #[error("process {pid} does not answer as Cachette does; let both use the same version")]
    Misunderstood {
        /// Its number, as it knows itself.
        pid: u32,
    },
    /// The process that shared the memory could not hand it over.
    #[error("process {pid} could not hand the memory over: {why}")]
    NotHandedOver {
        /// Its number, as it knows itself.
        pid: u32,
        /// What its driver said.
        why: String,
    },
    /// The operating system refused.
    #[error("the operating system refused to {what}: {why}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        why: String,
    },
}

impl ShareProblem {
    /// The operating system refused.
    pub(super) fn system(what: &'static str, error: &std::io::Error) -> Self {
        Self::System { what, why: error.to_string() }
    }
}

//! Why an importer could not open memory.

#![forbid(unsafe_code)]

use std::io;

/// Why an importer could not open memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The bytes are not a handle.
    #[error("these bytes are not a handle of shared memory; pass what SharedMemory::handle gave")]
    NotAHandle,
    /// A handle is too short or too long.
    #[error(
        "the handle has {given} bytes and should have {whole}; pass exactly the bytes that SharedMemory::handle gave"
    )]
    WrongLength {
        /// Bytes given.
        given: usize,
        /// Bytes of a whole handle.
        whole: usize,
    },
    /// A handle was modified.
    #[error("the handle was changed on its way; pass what SharedMemory::handle gave, byte by byte")]
    Damaged,
    /// A handle was made by a newer Cachette.
    #[error("the handle is of the future version {version}, and this one reads up to {known}; update the reader")]
    FutureVersion {
        /// Its version.
        version: u8,
        /// The newest that this version reads.
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
        /// The one that this version reads.
        known: u8,
    },
    /// The exporter is gone.
    #[error(
        "process {pid}, which shared the memory, has ended or has closed its allocator, or cannot be reached \
         from here; keep it running until all have opened the memory"
    )]
    Gone {
        /// The exporter.
        pid: u32,
    },
    /// The exporter has no socket name here, and its pidfd socket cannot be duplicated.
    #[error(
        "process {pid}, which shared the memory, cannot be reached, if it still runs: {why}; run both in the same \
         network namespace, or allow this process to duplicate descriptors of the other, which needs the right to trace \
         it (the same user and kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE) and the system calls pidfd_open and \
         pidfd_getfd (Linux 5.6, and a seccomp profile that allows them)"
    )]
    OutOfReach {
        /// The exporter.
        pid: u32,
        /// Why no transport reaches it.
        why: String,
    },
    /// The environment names an unknown transport.
    #[error("CACHETTE_SHARE_BY is {given:?}; set it to name or pidfd, or unset it to try both")]
    UnknownTransport {
        /// The value.
        given: String,
    },
    /// The memory is no longer shared, or the key is wrong.
    #[error("process {pid} does not share this any more; keep what Allocator::share gave until all have opened it")]
    Withdrawn {
        /// The exporter.
        pid: u32,
    },
    /// The exporter belongs to another user.
    #[error("process {pid} belongs to another user; only processes of one user share memory")]
    OtherUser {
        /// The exporter.
        pid: u32,
    },
    /// The exporter has no descriptors left.
    #[error(
        "process {pid}, which shared the memory, has no descriptors left for another reader; close memory that \
         was opened from it, or raise its limit of open files"
    )]
    Full {
        /// The exporter.
        pid: u32,
    },
    /// The exporter does not reply.
    #[error("process {pid}, which shared the memory, does not answer; it may be stopped")]
    NoAnswer {
        /// The exporter.
        pid: u32,
    },
    /// The exporter sent an unexpected reply.
    #[error("process {pid} does not follow Cachette's protocol; use the same version in both")]
    Protocol {
        /// The exporter.
        pid: u32,
    },
    /// The exporter could not hand the memory over.
    #[error("process {pid} could not hand the memory over: {why}")]
    NotHandedOver {
        /// The exporter.
        pid: u32,
        /// The text of its driver.
        why: String,
    },
    /// The operating system refused.
    #[error("the operating system refused to {what}: {why}")]
    System {
        /// The operation.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

impl OpenError {
    pub(crate) fn system(error: &io::Error) -> Self {
        Self::System { what: "reach the process that shared the memory", why: error.to_string() }
    }
}

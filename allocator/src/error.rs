//! The errors of the crate.

#![forbid(unsafe_code)]

use std::fmt;

use cachette_hal::{self as hal, Ordinal, StreamRef};

use crate::addresses::problem::AddressesProblem;
use crate::growable::GrowableProblem;
use crate::human::Bytes;
use crate::ipc::IpcError;
use crate::out_of_memory::OutOfMemory;
use crate::pool::{PoolId, PoolProblem};
use crate::source::SourceError;
use crate::sync::Forked;

/// Why a call to an allocator failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No memory, even after all retry steps.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// The request is larger than the memory of any device.
    #[error("out of memory: tried to allocate {bytes} bytes, and no device has 1 EiB")]
    TooLarge {
        /// The requested bytes.
        bytes: u64,
    },
    /// The size of a buffer in bytes does not fit in an integer.
    #[error("out of memory: tried to allocate {len} elements of {element_bytes} bytes, and no device has 1 EiB")]
    TooManyElements {
        /// The requested elements.
        len: usize,
        /// Bytes per element.
        element_bytes: usize,
    },
    /// An alignment is not a power of two.
    #[error("memory cannot be aligned to {align} bytes; ask for a power of two")]
    InvalidAlignment {
        /// The requested alignment.
        align: u64,
    },
    /// The length of a slice differs from the length of the buffer.
    #[error("expected {len} elements, got {given}")]
    LengthMismatch {
        /// Elements of the buffer.
        len: usize,
        /// Elements of the slice.
        given: usize,
    },
    /// A part of a buffer is not inside it.
    #[error("elements {first} to {end} are not inside a buffer of {len}")]
    RangeOutside {
        /// The first element of the part.
        first: usize,
        /// The element after the last.
        end: usize,
        /// Elements of the buffer.
        len: usize,
    },
    /// A buffer belongs to another allocator.
    #[error("the buffer belongs to another allocator; copy through the host")]
    ForeignBuffer,
    /// The device lacks a group that the call needs.
    #[error(transparent)]
    Missing(#[from] hal::Missing),
    /// The driver failed.
    #[error(transparent)]
    Device(#[from] hal::Error),
    /// An address is not the start of an allocation of this allocator.
    #[error("invalid device pointer {address:#x}: {why}")]
    InvalidPointer {
        /// The address.
        address: u64,
        /// The reason.
        why: PointerProblem,
    },
    /// A request named an address that is not free.
    #[error("no {bytes} bytes can be allocated at {address:#x}: {why}")]
    AddressNotFree {
        /// The address.
        address: u64,
        /// The requested bytes.
        bytes: u64,
        /// The reason.
        why: AddressProblem,
    },
    /// An address is not the start of pinned memory of this allocator.
    #[error("invalid pinned pointer {address:#x}: {why}")]
    InvalidPinnedPointer {
        /// The address.
        address: u64,
        /// The reason.
        why: PointerProblem,
    },
    /// No pinned memory, even after all retry steps.
    #[error(
        "out of pinned memory: tried to allocate {} (a block of {}); this allocator holds {}, of which {} are in use; \
         free pinned memory, or raise what the system lets a process lock",
        Bytes(*requested), Bytes(*block), Bytes(*held), Bytes(*active)
    )]
    OutOfPinnedMemory {
        /// The bytes that the caller requested.
        requested: u64,
        /// The same, rounded up.
        block: u64,
        /// Bytes of all pinned segments.
        held: u64,
        /// Bytes of the blocks that callers, streams or graphs use.
        active: u64,
    },
    /// A stream belongs to another allocator.
    #[error("the stream belongs to another allocator; use one of this allocator's own")]
    ForeignStream,
    /// The driver rejects a stream.
    #[error(
        "the driver does not know the stream {:#x}; pass a stream of this device that is not destroyed",
        stream.raw()
    )]
    UnknownStream {
        /// The handle that was passed.
        stream: StreamRef,
    },
    /// A pool rejects a call.
    #[error("pool {pool}: {why}")]
    Pool {
        /// The pool.
        pool: PoolId,
        /// The reason.
        why: PoolProblem,
    },
    /// A callback of a pool has failed: `before_sleep`, or `reload` of an evicted pool.
    #[error("pool {pool}: its callback failed: {error}; repeat the call to try again")]
    PoolCallback {
        /// The pool.
        pool: PoolId,
        /// What the callback said.
        error: String,
    },
    /// A growable allocation rejects a call.
    #[error("growable allocation: {0}")]
    Growable(#[from] GrowableProblem),
    /// Saved addresses cannot be read or restored.
    #[error("saved addresses: {0}")]
    Addresses(Box<AddressesProblem>),
    /// The source of a pool failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The allocator belongs to the parent process of a fork.
    #[error(
        "this process was forked from the one that opened the allocator, and neither drivers nor locks survive that; \
         start workers by spawn or exec, or fork before the first allocator is opened and open one in each worker"
    )]
    Forked,
    /// Memory cannot be shared with other processes, or not be opened.
    #[error("shared memory: {0}")]
    Ipc(#[from] IpcError),
    /// A device cannot access the memory of another.
    #[error("device {peer} cannot reach the memory of device {device}; copy through the host")]
    PeerOutOfReach {
        /// The device that owns the memory.
        device: Ordinal,
        /// The other device.
        peer: Ordinal,
    },
    /// A fraction of the device's memory is not between 0 and 1.
    #[error("the memory fraction is {0}, and must be from 0 to 1")]
    InvalidFraction(String),
}

/// The text, since a `main` that returns the error prints it by `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Returns whether device memory was short.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory(_) | Self::TooLarge { .. } | Self::TooManyElements { .. } => true,
            Self::Device(error) => matches!(error.kind(), hal::ErrorKind::OutOfMemory),
            _ => false,
        }
    }
}

/// Why an address is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointerProblem {
    /// It lies in no segment of this allocator.
    #[error("not allocated by this allocator; it may belong to another device or library")]
    Foreign,
    /// It lies inside an allocation.
    #[error("it lies {offset} bytes inside the allocation at {start:#x}; pass that address")]
    Interior {
        /// Start of the allocation.
        start: u64,
        /// Distance from the start.
        offset: u64,
    },
    /// It lies in free memory.
    #[error("nothing is allocated there; it may have been freed before")]
    Free,
    /// It was freed already, and the block still waits for other streams.
    #[error("it was freed before, and only waits for other streams")]
    FreedTwice,
    /// A handle owns it.
    #[error("it belongs to an owner, which frees it when dropped")]
    Owned,
}

/// Why no memory can be allocated at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressProblem {
    /// It lies in no segment of this allocator.
    #[error("no memory of this allocator lies there; name an address that this process has freed on this device")]
    Foreign,
    /// No block can begin there.
    #[error("blocks begin at multiples of 512 bytes; name the first byte of an earlier allocation")]
    Misaligned,
    /// It is memory of another stream or pool.
    #[error("another stream or pool has that memory; ask in the stream and in the pool that allocated it before")]
    Elsewhere,
    /// A block there is in use.
    #[error("{bytes} bytes from {start:#x} on are in use; free them before")]
    InUse {
        /// The start of the block.
        start: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A freed block there waits for other streams.
    #[error("other streams or processes still use what was freed there; wait for them before")]
    Pending,
    /// The addresses have no memory.
    #[error("its memory has left, because it was idle; keep the pool that a graph captured, or allocate elsewhere")]
    Unmapped,
    /// The segment there serves only larger, or only smaller requests.
    #[error("direct segments serve requests of up to 1 MiB or larger ones; ask for the size that was allocated there")]
    OtherKind,
    /// Fewer bytes are free there.
    #[error("only {bytes} bytes are free there; free what follows before")]
    TooShort {
        /// The free bytes from the address on.
        bytes: u64,
    },
}

impl From<Forked> for Error {
    fn from(_: Forked) -> Self {
        Self::Forked
    }
}

impl From<AddressesProblem> for Error {
    fn from(why: AddressesProblem) -> Self {
        Self::Addresses(Box::new(why))
    }
}

impl From<OutOfMemory> for Error {
    fn from(report: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(report))
    }
}

impl PoolProblem {
    pub(crate) const fn of(self, pool: PoolId) -> Error {
        Error::Pool { pool, why: self }
    }
}

/// There are more streams than any driver supports.
pub(crate) const NO_HEAP: hal::Error = hal::Error::new(hal::ErrorKind::OutOfMemory, "create_stream");

/// Returns the sum, or the first failure. The iterator is always consumed completely.
pub(crate) fn sum_all(bytes: impl Iterator<Item = hal::Result<u64>>) -> hal::Result<u64> {
    bytes.reduce(|sum, bytes| Ok(sum? + bytes?)).unwrap_or(Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_memory_is_a_lack_of_device_memory_that_the_allocator_or_the_driver_found() {
        let driver = |kind| Error::Device(hal::Error::new(kind, "allocate"));
        assert!(Error::TooLarge { bytes: 1 << 60 }.is_out_of_memory());
        assert!(Error::TooManyElements { len: usize::MAX, element_bytes: 4 }.is_out_of_memory());
        assert!(driver(hal::ErrorKind::OutOfMemory).is_out_of_memory());
        assert!(!driver(hal::ErrorKind::InvalidValue).is_out_of_memory());
        assert!(!Error::OutOfPinnedMemory { requested: 1, block: 1, held: 0, active: 0 }.is_out_of_memory());
    }
}

//! Errors of the plug-in.

use cachette::hal::{self, Vendor};
use cachette::history::UnknownAction;
use cachette_process::Panicked;

use crate::message::Sentences;
use crate::processes::Process;

/// The maximum number of events of a history; their memory is allocated at once.
pub(crate) const MOST_ENTRIES: u64 = 100_000_000;

/// Why a call of the plug-in failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The allocators of the process failed.
    #[error(transparent)]
    Process(#[from] cachette_process::Error),
    /// Nothing was ever allocated on the device.
    #[error("nothing was allocated on device {device}; free memory on the device it is of")]
    Unopened {
        /// The device.
        device: i64,
    },
    /// The allocator failed.
    #[error("{}{error}", Sentences { error, vendor: *vendor, processes })]
    Memory {
        /// The vendor of the device.
        vendor: Vendor,
        /// The error of the allocator.
        error: cachette::Error,
        /// The processes that use the device's memory, for out-of-memory errors.
        processes: Vec<Process>,
    },
    /// A pool was released more often than it was begun.
    #[error("pool {{{}, {}}} of device {device} has no user that could be released", id.0, id.1)]
    NoUser {
        /// The device.
        device: u32,
        /// The id of the pool.
        id: (u64, u64),
    },
    /// A history was requested with more events than it can keep.
    #[error(
        "max_entries is {asked}, and at most {MOST_ENTRIES} events are kept; the places for all of them are made at once, \
         96 bytes each"
    )]
    TooManyEntries {
        /// The requested number.
        asked: u64,
    },
    /// A history was requested to skip an unknown action.
    #[error("{0}; name events such as 'free_completed'")]
    Action(#[from] UnknownAction),
}

impl From<Panicked> for Error {
    fn from(panic: Panicked) -> Self {
        Self::Process(panic.into())
    }
}

/// Allocating and freeing box their errors: a result that fits into registers is not copied through memory.
impl From<Panicked> for Box<Error> {
    fn from(panic: Panicked) -> Self {
        Self::new(panic.into())
    }
}

impl Error {
    /// Returns whether device memory was short.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Memory { error, .. } if error.is_out_of_memory())
    }

    /// Returns whether the driver was shut down because the process exits.
    pub(crate) const fn is_shutting_down(&self) -> bool {
        let Self::Memory { error: cachette::Error::Device(error), .. } = self else { return false };
        matches!(error.kind(), hal::ErrorKind::ShuttingDown)
    }
}

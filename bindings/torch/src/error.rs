//! Errors of the plug-in.

use cachette::backends::OpenError;
use cachette::config::ConfigError;
use cachette::hal::{self, Vendor};
use cachette::history::UnknownAction;

use crate::message::Sentences;
use crate::processes::Process;
use crate::state::{MOST_DEVICES, MOST_ENTRIES};

/// Why the plug-in could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It was started before.
    #[error(
        "the plug-in was started before, with the backend '{backend}'; start it once in a process, and change its \
         configuration by `update_config`"
    )]
    Started {
        /// The backend it uses.
        backend: String,
    },
    /// There is no such backend.
    #[error(transparent)]
    Backend(#[from] OpenError),
    /// The configuration of the environment is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It had to start by itself, and no driver is loaded.
    #[error(
        "the plug-in was not started, and this process has loaded neither libcuda nor libamdhip64; import PyTorch with \
         a device first, or start the plug-in by name"
    )]
    NothingLoaded,
}

/// Why a call of the plug-in failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plug-in could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The process was forked after the driver was first used.
    #[error(
        "this process was forked after its parent had used the device, and no driver survives that; start workers with \
         the 'spawn' method, as in torch.multiprocessing.set_start_method('spawn')"
    )]
    Forked,
    /// The device could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no device of this number.
    #[error("there is no device {device}; the numbers are 0 to {}", MOST_DEVICES - 1)]
    NoSuchDevice {
        /// The number asked for.
        device: i64,
    },
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
        /// What failed.
        error: cachette::Error,
        /// The processes that use the device's memory, for out-of-memory errors.
        processes: Vec<Process>,
    },
    /// A pool was released more often than it was begun.
    #[error("pool {{{}, {}}} of device {device} has no user that could be released", id.0, id.1)]
    NoUser {
        /// The device.
        device: u32,
        /// The pool's name.
        id: (u64, u64),
    },
    /// All slots are taken.
    #[error("all {most} slots for memory pools are taken; drop one, and free all that was allocated by it")]
    NoSlot {
        /// How many there are.
        most: usize,
    },
    /// A slot was dropped.
    #[error("the slot of this memory pool was dropped; keep it as long as the pool")]
    SlotDropped,
    /// A history was to keep more events than it can.
    #[error(
        "max_entries is {asked}, and at most {MOST_ENTRIES} events are kept; the places for all of them are made at once, \
         96 bytes each"
    )]
    TooManyEntries {
        /// How many.
        asked: u64,
    },
    /// A history was to leave out what it does not know.
    #[error("{0}; name events such as 'free_completed'")]
    Action(#[from] UnknownAction),
    /// A defect of the plug-in.
    #[error("internal error, please report it: {0}")]
    Panicked(String),
}

impl Error {
    /// Whether there was no memory, so that freeing some would help.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        use cachette::Error as Memory;
        let Self::Memory { error, .. } = self else { return false };
        match error {
            Memory::OutOfMemory(_) | Memory::TooLarge { .. } | Memory::TooManyElements { .. } => true,
            Memory::Device(error) => matches!(error.kind(), hal::ErrorKind::OutOfMemory),
            _ => false,
        }
    }

    /// Whether the driver was shut down because the process is leaving.
    pub(crate) const fn is_shutting_down(&self) -> bool {
        let Self::Memory { error: cachette::Error::Device(error), .. } = self else { return false };
        matches!(error.kind(), hal::ErrorKind::ShuttingDown)
    }
}

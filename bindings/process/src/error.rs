//! Errors of the shared allocators.

use cachette::backends::OpenError;
use cachette::config::ConfigError;

use crate::guard::Panicked;
use crate::state::MOST_DEVICES;

/// Why the shared allocators could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// They were already started.
    #[error(
        "Cachette was started before in this process, with the backend '{backend}'; start it once, and change its \
         configuration by `update_config`"
    )]
    Started {
        /// The backend that they use.
        backend: String,
    },
    /// The backend does not exist.
    #[error(transparent)]
    Backend(#[from] OpenError),
    /// The configuration of the environment is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The first request had to start them, but no driver is loaded.
    #[error(
        "Cachette was not started, and this process has loaded neither libcuda nor libamdhip64; use a device with the \
         program's own library first, or start Cachette by the name of a backend"
    )]
    NothingLoaded,
}

/// Why a call of the shared allocators failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// They could not start.
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
    /// The device does not exist.
    #[error("there is no device {device}; the numbers are 0 to {}", MOST_DEVICES - 1)]
    NoSuchDevice {
        /// The requested number.
        device: i64,
    },
    /// The allocator of a device failed.
    #[error(transparent)]
    Memory(#[from] cachette::Error),
    /// A defect.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

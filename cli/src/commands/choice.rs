//! The device that a command runs on.

use cachette::backends::OpenError;
use cachette_hal::Ordinal;
use cachette_replay::Target;
use clap::Args;

/// The options that choose a device.
#[derive(Debug, Args)]
pub(super) struct Choice {
    /// The backend: cuda, hip or host; if left out, the first that has a device
    #[arg(long)]
    pub(super) backend: Option<String>,
    /// The device
    #[arg(long, value_name = "N", default_value = "0", value_parser = ordinal)]
    #[arg(allow_hyphen_values = true)]
    pub(super) device: Ordinal,
}

impl Choice {
    /// Opens the device; the host device has `phantom` bytes of phantom memory.
    pub(super) fn open(&self, phantom: u64) -> Result<Target, OpenError> {
        Target::open(self.backend.as_deref(), self.device, phantom)
    }
}

/// Reads `--device`.
pub(super) fn ordinal(text: &str) -> Result<Ordinal, &'static str> {
    text.parse().map_err(|_| "a device is a whole number from 0 up")
}

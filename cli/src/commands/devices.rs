//! `cachette devices`: the available backends and devices.

pub(super) mod listing;
mod text;

use std::io::Write;

use clap::{Args, ValueEnum};

use self::listing::Listing;
use crate::error::CliError;
use crate::json::write_to;
use crate::stdout;

/// Lists backends and devices, with supported features and the reason for each missing one
#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// The format of the list
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ListFormat {
    #[default]
    Text,
    Json,
}

impl Devices {
    pub(super) fn run(self) -> Result<(), CliError> {
        let listing = Listing::gather();
        stdout::print(|out| match self.format {
            ListFormat::Text => write!(out, "{}", stdout::wrap(&listing.to_string())),
            ListFormat::Json => write_to(out, &listing),
        })?;
        Ok(())
    }
}

//! `cachette config`: the keys of a configuration.

use std::io::{self, Write};

use cachette::config::ConfigKey;
use clap::Args;

use crate::error::CliError;
use crate::stdout;

/// Lists the keys of a configuration, with values and defaults
///
/// The configuration is the text `key:value,key:value` in `CACHETTE_ALLOC_CONF`, in `--config`, or in the arguments of
/// a library. A switch is exactly True or False.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// The key to describe; if left out, every key
    #[arg(value_name = "KEY")]
    key: Option<String>,
}

impl Config {
    pub(super) fn run(self) -> Result<(), CliError> {
        let one = self.key.as_deref().map(ConfigKey::of).transpose()?;
        let keys = one.map_or(ConfigKey::all(), std::slice::from_ref);
        Ok(stdout::print(|out| keys.iter().try_for_each(|key| write(out, key)))?)
    }
}

/// Writes a key as a paragraph.
fn write(out: &mut dyn Write, key: &ConfigKey) -> io::Result<()> {
    let what = format!("    {}", key.description());
    let values = format!("    value: {}; default: {}", key.values(), key.default_value());
    // Markdown's marks of code are for the page.
    let text = [what, values].map(|line| stdout::wrap_to(&line.replace('`', ""), 0)).concat();
    write!(out, "{}\n{text}", key.spellings().join(", "))
}

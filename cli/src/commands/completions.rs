//! `cachette completions`: the completions of a shell.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::error::CliError;
use crate::stdout;

/// Prints the completions of a shell
///
/// For bash, for example: `cachette completions bash > ~/.local/share/bash-completion/completions/cachette`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), CliError> {
        // The generator panics if it cannot write.
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "cachette", &mut text);
        Ok(stdout::print(|out| out.write_all(&text))?)
    }
}

//! `cachette man`: the manual page.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;

use crate::Cli;
use crate::error::CliError;
use crate::stdout;

/// Prints the manual page of the program, or of one command
///
/// To read it at once: `cachette man | man -l -`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command
    command: Option<String>,
}

impl Man {
    pub(super) fn run(self) -> Result<(), CliError> {
        let mut program = Cli::command();
        program.build();
        let page = match self.command {
            None => Page::new(program),
            Some(name) => match program.find_subcommand(&name) {
                Some(command) => Page::new(command.clone()),
                None => return Err(CliError::NoCommand { name }),
            },
        };
        Ok(stdout::print(|out| page.render(&mut *out).and_then(|()| out.flush()))?)
    }
}

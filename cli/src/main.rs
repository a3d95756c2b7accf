//! The `cachette` program.

mod commands;
mod error;
mod json;
mod output;
mod stdout;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;

/// A caching memory allocator for NVIDIA, AMD and host memory
#[derive(Debug, Parser)]
#[command(name = "cachette", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let code = match Cli::parse().command.run() {
        Ok(()) => 0,
        Err(error) => error.report(),
    };
    cachette_conformance::leave_if_hung(code);
    ExitCode::from(code)
}

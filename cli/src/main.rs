//! The `cachette` program.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cachette_cli::main(env::args_os()))
}

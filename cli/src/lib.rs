//! The `cachette` program, as a library: the binary and the Python package start it by [`main`].

mod commands;
mod error;
mod json;
mod output;
mod stdout;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::LazyLock;

use cachette::Backends;
use clap::{ColorChoice, Parser};

use crate::commands::Command;
use crate::error::CliError;

/// What `--version` prints: the version, the commit, and the backends that are built in.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let backends: Vec<_> = Backends::names().collect();
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("CACHETTE_COMMIT"));
    format!("{version} ({commit}; backends {})", backends.join(", "))
});

/// What a user without a command can do next.
const NEXT: &str = "\
cachette: a caching memory allocator for NVIDIA, AMD and host memory

  cachette doctor                  is this machine ready, and what is missing?
  cachette replay RUN.pickle       the memory and time of a recorded program
  cachette replay RUN.pickle --fit --device-size 80GB
                                   would it fit on a smaller card?
  cachette run -- PROGRAM          a program with memory from Cachette
  cachette snapshot view FILE      a snapshot of PyTorch or Cachette as a page
  cachette snapshot diff A B       what grew between two snapshots

A recording comes from torch.cuda.memory._record_memory_history() and
torch.cuda.memory._dump_snapshot(\"RUN.pickle\"); benches/traces has others.
`cachette --help` lists every command, `cachette COMMAND --help` its options.
";

/// A caching memory allocator for NVIDIA, AMD and host memory
///
/// Sizes are numbers with a unit or without: K, M, G and T are powers of 1024, as in PyTorch, and so are KiB to TiB; KB
/// to TB are powers of 1000, as vendors state the memory of a card. The exit code is 0 on success, 1 if an operation
/// failed, and 2 if the request was wrong.
#[derive(Debug, Parser)]
#[command(name = "cachette", version = VERSION.as_str(), max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Colours of the output
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto")]
    color: ColorChoice,
    /// Shows no progress, and `run` no lines about the program
    #[arg(long, short, global = true)]
    quiet: bool,
}

/// Runs the program with these arguments, of which the first is its name, and returns the exit code.
///
/// If a case of the conformance suite hung, the process ends here.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let code = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.run(),
        // The text of `--help` and `--version`, or what is wrong with the arguments.
        Err(answer) => {
            // If this fails too, the text cannot be shown.
            let _ = answer.print();
            u8::try_from(answer.exit_code()).unwrap_or(2)
        }
    };
    cachette_conformance::exit_if_hung(code);
    // At the end of a process that is not written in Rust, nothing else does.
    let _ = io::stdout().flush();
    code
}

impl Cli {
    fn run(self) -> u8 {
        match self.color {
            // Coloured on a terminal, unless the variable NO_COLOR is set.
            ColorChoice::Auto => {}
            choice => console::set_colors_enabled(choice == ColorChoice::Always),
        }
        if self.quiet {
            commands::hide_progress();
        }
        let done = match self.command {
            Some(command) => command.run(),
            None => stdout::print(|out| out.write_all(NEXT.as_bytes())).map_err(CliError::Output),
        };
        match done {
            Ok(()) => 0,
            Err(error) => error.report(),
        }
    }
}

//! Prints how many instructions a pair takes, beside the bound it has to keep.

use std::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{self, ExitCode};

use cachette_benches::instructions::{Case, Count, exit_code, measure, select};
use cachette_replay::table::Table;
use clap::Parser;

/// Instructions a pair, counted by callgrind on a host device with phantom memory
///
/// Exit code 1 if --check finds a bound exceeded, 2 if nothing could be counted.
#[derive(Debug, Parser)]
struct Arguments {
    /// Fails if a bound is exceeded
    #[arg(long)]
    check: bool,
    /// Writes the counts here too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Counts only cases whose name holds this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Runs one case, to be counted by the caller
    #[arg(long, hide = true, value_name = "NAME", value_parser = case)]
    run: Option<Case>,
    /// Runs it with twice the pairs
    #[arg(long, hide = true, requires = "run")]
    twice: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match arguments.run {
        Some(case) => case.run(arguments.twice, || process::exit(0)).map(|()| true),
        None => report(&arguments),
    };
    exit_code(ended)
}

/// Reads `--run`.
fn case(name: &str) -> Result<Case, &'static str> {
    Case::named(name).ok_or("there is no such case")
}

/// Counts every case, and says whether what was asked for holds.
fn report(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let mut counts = Vec::new();
    for case in select(Case::ALL, Case::name, &arguments.filter)? {
        if io::stderr().is_terminal() {
            writeln!(io::stderr(), "counting {}", case.name())?;
        }
        counts.push(measure(case)?);
    }
    write!(io::stdout(), "{}", table(&counts))?;
    if let Some(path) = &arguments.json {
        let mut file = File::create(path).map_err(|error| format!("cannot write to '{}': {error}", path.display()))?;
        serde_json::to_writer_pretty(&mut file, &counts)?;
        writeln!(file)?;
    }
    Ok(!arguments.check || counts.iter().all(Count::holds))
}

fn table(counts: &[Count]) -> Table<4> {
    let mut table = Table::new(["workload", "instructions a pair", "bound", ""]);
    for count in counts {
        table.push([
            count.workload.to_owned(),
            format!("{:.1}", count.instructions_per_pair),
            count.bound.to_string(),
            if count.holds() { "" } else { "exceeded" }.to_owned(),
        ]);
    }
    table
}

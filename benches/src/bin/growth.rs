//! Prints the instructions of operations as the number of things around them grows.

use std::error::Error;
use std::io::{self, Write};
use std::process::{self, ExitCode};

use cachette_benches::growth::{Growing, Growth, NUMBERS, measure};
use cachette_benches::instructions::{exit_code, select};
use cachette_replay::table::Table;
use clap::Parser;

/// Instructions of an operation, counted by callgrind with 1,000 to 32,000 streams, pools, blocks and others
///
/// Exit code 1 if --check finds one that grows too much, 2 if nothing could be counted.
#[derive(Debug, Parser)]
struct Arguments {
    /// Fails if a case without a reason grows by more than 1.3 with a doubling
    #[arg(long)]
    check: bool,
    /// Counts only cases whose name holds this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// The largest number
    #[arg(long, value_name = "NUMBER", default_value_t = 32_000)]
    most: u32,
    /// Runs one case, to be counted by the caller
    #[arg(long, hide = true, value_name = "NAME", value_parser = case, requires = "number")]
    run: Option<Growing>,
    /// Runs it with this number
    #[arg(long, hide = true, requires = "run")]
    number: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match (arguments.run, arguments.number) {
        // No destructor is counted, so the process may end without them.
        (Some(case), Some(number)) => (case.run)(number).map(|()| process::exit(0)),
        _ => report(&arguments),
    };
    exit_code(ended)
}

/// Reads `--run`.
fn case(name: &str) -> Result<Growing, &'static str> {
    Growing::named(name).ok_or("there is no such case")
}

/// Counts every case, and says whether what was asked for holds.
fn report(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let mut table = Table::new(["operation", "1k", "2k", "4k", "8k", "16k", "32k", "most growth", ""]);
    let mut holds = true;
    for case in select(Growing::ALL, |case| case.name, &arguments.filter)? {
        let growth = measure(case, arguments.most)?;
        holds &= growth.holds();
        table.push(row(&growth));
    }
    write!(io::stdout(), "{table}")?;
    Ok(!arguments.check || holds)
}

fn row(growth: &Growth) -> [String; 9] {
    let count = |at: usize| growth.instructions.get(at).map_or_else(|| "-".to_owned(), |count| format!("{count:.0}"));
    let mut row: [String; 9] = std::array::from_fn(|_| String::new());
    growth.case.clone_into(&mut row[0]);
    for at in 0..NUMBERS.len() {
        row[at + 1] = count(at);
    }
    row[7] = format!("{:.2}", growth.largest());
    if !growth.holds() {
        "exceeded".clone_into(&mut row[8]);
    }
    row
}

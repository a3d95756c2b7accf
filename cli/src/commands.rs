//! The commands, one file each.

mod bench;
mod choice;
mod completions;
mod config;
mod conformance;
mod devices;
mod doctor;
mod man;
mod progress;
mod replay;
pub(crate) mod run;
mod size;
mod snapshot;
mod standard;
mod top;

pub(crate) use progress::hide as hide_progress;

use clap::Subcommand;

use crate::error::CliError;

/// The configuration of libraries and of programs that `cachette run` starts.
const CONFIG: &str = "CACHETTE_ALLOC_CONF";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Doctor(doctor::Doctor),
    Devices(devices::Devices),
    Conformance(conformance::Conformance),
    Bench(bench::Bench),
    Replay(replay::Replay),
    Snapshot(snapshot::Snapshot),
    Run(run::Run),
    Top(top::Top),
    Config(config::Config),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Doctor(doctor) => doctor.run(),
            Self::Devices(devices) => devices.run(),
            Self::Conformance(conformance) => conformance.run(),
            Self::Bench(bench) => bench.run(),
            Self::Replay(replay) => replay.run(),
            Self::Snapshot(snapshot) => snapshot.run(),
            Self::Run(run) => run.run(),
            Self::Top(top) => top.run(),
            Self::Config(config) => config.run(),
            Self::Completions(completions) => completions.run(),
            Self::Man(man) => man.run(),
        }
    }
}

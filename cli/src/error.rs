//! Why the program stopped, and its exit code.

use std::io::{self, Write};
use std::path::PathBuf;

use cachette::backends::OpenError;
use cachette::config::ConfigError;
use cachette::human::Bytes;
use cachette_conformance::{FilterError, RunError};
use cachette_replay::TraceError;
use cachette_snapshot::SnapshotError;

/// Why a command stopped.
///
/// Exit code 1 means that the command ran and failed, 2 that the request was invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Cases of the conformance suite failed; the report lists them.
    #[error("{failed} of {total} cases failed")]
    CasesFailed { failed: usize, total: usize },
    /// `doctor` found something that does not work.
    #[error("this machine is not ready: {broken}")]
    NotReady { broken: String },
    /// A row of the microbenchmarks could not be measured.
    #[error("{workload} {parameter} could not be measured: {error}")]
    NotMeasured { workload: &'static str, parameter: String, error: cachette::Error },
    /// Replays ended early; the table shows which.
    #[error("{failed} of {total} replays failed")]
    ReplaysFailed { failed: usize, total: usize },
    /// Runs need a larger device, also with Cachette.
    #[error("{} not fit with Cachette", if *total == 1 { "the run does".to_owned() } else { format!("{lacking} of {total} runs do") })]
    DoesNotFit { lacking: usize, total: usize },
    /// The report could not be written.
    #[error("could not write the output: {0}")]
    Output(#[from] io::Error),
    /// Other processes cannot be asked what they hold.
    #[error("other processes cannot be asked: {0}; is the folder of CACHETTE_RECLAIM_DIR there, or /proc mounted?")]
    Neighbours(io::Error),
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The filter selects no case.
    #[error("bad --filter: {0}")]
    Filter(#[from] FilterError),
    /// The suite could not begin.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A trace cannot be replayed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The extension of the new file is unknown.
    #[error("unknown format of '{}'; use a name that ends in .json or .pickle", path.display())]
    SnapshotEnding { path: PathBuf },
    /// An option that needs phantom memory was used with a real device.
    #[error("{option} works only with the backend host; omit it for {backend}")]
    HostAlone { option: &'static str, backend: String },
    /// A configuration is invalid.
    #[error("bad configuration: {0}")]
    Config(#[from] ConfigError),
    /// The limit is larger than the device's memory.
    #[error("--limit {} is more than the {} of the device; use a smaller limit, or omit it", Bytes(*limit), Bytes(*total))]
    LimitTooLarge { limit: u64, total: u64 },
    /// A configuration and an option both limit memory.
    #[error("the configuration '{config}' limits memory, and so does {option}; leave one of them out")]
    LimitTwice { config: String, option: &'static str },
    /// A run failed for another reason than its memory.
    #[error("{trace} could not be replayed: {why}")]
    NotReplayed { trace: String, why: String },
    /// The output file cannot be written.
    #[error("cannot write to '{}': {error}{}", path.display(), output_advice(error))]
    OutputFile { path: PathBuf, error: io::Error },
    /// There is no manual page of this command.
    #[error("there is no command '{name}'; `cachette --help` lists them")]
    NoCommand { name: String },
    /// A program behind a front starts another front.
    #[error("this program runs behind `cachette run` already; leave one of the two out")]
    FrontTwice,
    /// No program was named.
    #[error("name a program after --")]
    NoProgram,
    /// The front's library was not found.
    #[error(
        "libcachette_front.so is neither beside this program nor in ../lib; name it by --front or CACHETTE_FRONT, or \
         build it: cargo build --release -p cachette-front"
    )]
    NoFront,
    /// The front's library cannot be used.
    #[error("'{}' is not the front: {why}; name libcachette_front.so or its folder", path.display())]
    Front { path: PathBuf, why: String },
    /// There is no driver.
    #[error(
        "no CUDA or HIP driver found ({tried}); install one, or name its library by CACHETTE_CUDA_LIBRARY or \
         CACHETTE_HIP_LIBRARY{more}"
    )]
    NoDriver { tried: String, more: &'static str },
    /// The libraries in front cannot be written.
    #[error("cannot write to the folder '{}': {error}; set XDG_CACHE_HOME to a folder of this user", path.display())]
    Folder { path: PathBuf, error: io::Error },
    /// The program cannot be started.
    #[error("cannot start '{}': {error}", program.display())]
    Program { program: PathBuf, error: io::Error },
}

impl CliError {
    /// Prints the error, and returns the exit code.
    pub(crate) fn report(&self) -> u8 {
        // If this fails too, the error cannot be reported.
        let _ = writeln!(io::stderr(), "error: {self}");
        self.code()
    }

    fn code(&self) -> u8 {
        match self {
            Self::Program { error, .. } => shell_code(error),
            // The work was done before the disk was full.
            Self::OutputFile { error, .. } if error.kind() == io::ErrorKind::StorageFull => 1,
            Self::CasesFailed { .. }
            | Self::NotReady { .. }
            | Self::NotMeasured { .. }
            | Self::NotReplayed { .. }
            | Self::ReplaysFailed { .. }
            | Self::DoesNotFit { .. }
            | Self::NoDriver { .. }
            | Self::Output(_)
            | Self::Neighbours(_) => 1,
            Self::Open(_)
            | Self::Filter(_)
            | Self::Run(_)
            | Self::Trace(_)
            | Self::Snapshot(_)
            | Self::SnapshotEnding { .. }
            | Self::HostAlone { .. }
            | Self::Config(_)
            | Self::LimitTooLarge { .. }
            | Self::LimitTwice { .. }
            | Self::OutputFile { .. }
            | Self::NoCommand { .. }
            | Self::FrontTwice
            | Self::NoProgram
            | Self::NoFront
            | Self::Front { .. }
            | Self::Folder { .. } => 2,
        }
    }
}

/// What to do if an output file cannot be written.
fn output_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "; free space there, or name a file elsewhere",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; name a file in a folder of this user",
        io::ErrorKind::NotFound
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::InvalidFilename => "; name a file in a folder that exists",
        // The error says what to do, or there is nothing to do about the path.
        _ => "",
    }
}

/// The exit code of a shell for a program that cannot be started.
fn shell_code(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

//! `cachette run`: a program with Cachette in front of its driver.
//!
//! The program is started with two variables of the loader. `LD_PRELOAD` names the front, so that functions which the
//! program or its libraries link are found there first. `LD_LIBRARY_PATH` begins with a folder that has files of the
//! driver's names. Each is a library without code that depends on the front and then on the driver by its full path.
//! So a program that opens the driver by name, and asks the handle for a function, gets the front's or the driver's.
//! Neither needs a compiler, a patched driver or a replacement of `dlsym`.

mod driver;
mod elf;
mod folder;
mod front;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{self, Command};

use cachette::Config;
use clap::Args;

use self::driver::Driver;
use super::snapshot::check_ending;
use super::{CONFIG, progress, size};
use crate::error::CliError;
use crate::output;

/// The process that the program runs in, which shows a second front.
const RUN: &str = "CACHETTE_RUN";

/// Runs a program with its device memory from Cachette
///
/// It works for programs that link libcuda or libamdhip64, or open one by its name. The program is not changed, and its
/// exit code is returned. At its end, also by SIGTERM or SIGINT, a line on stderr says what Cachette did; --quiet omits
/// it. Exit code 1 if there is no driver, 2 if there is no front or an option is invalid; 126 or 127 if the program
/// cannot be started.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The configuration, such as `expandable_segments:True`
    #[arg(long, value_name = "TEXT")]
    config: Option<String>,
    /// The most memory that the program may hold on each device, such as 40G: the cache, and calls past it
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    limit: Option<u64>,
    /// Records a history, and writes a snapshot with it at the end and on SIGUSR1, as .json or .pickle
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Writes metrics to this file every five seconds, in the text format of Prometheus
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// The front's library, or its folder; beside this program or in ../lib by default
    #[arg(long, value_name = "PATH")]
    front: Option<PathBuf>,
    /// Says where a driver was searched, if there is none
    #[arg(long, short)]
    verbose: bool,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    pub(super) fn run(self) -> Result<(), CliError> {
        if env::var_os(RUN).is_some() {
            return Err(CliError::FrontTwice);
        }
        let config = self.configuration()?;
        let snapshot = self.snapshot.as_deref().map(snapshot_file).transpose()?;
        let metrics = self.metrics.as_deref().map(writable).transpose()?;
        let front = front::find(self.front.as_deref())?;
        let drivers = driver::find_all(self.verbose)?;
        let folder = folder::fill(&front, &drivers)?;
        let (program, arguments) = self.program.split_first().ok_or(CliError::NoProgram)?;
        let mut command = Command::new(program);
        command.args(arguments);
        command.env("LD_PRELOAD", before("LD_PRELOAD", &front));
        command.env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &folder));
        command.env(RUN, process::id().to_string()).env("CACHETTE_RUN_FOLDER", &folder);
        for driver in &drivers {
            command.envs(driver.variables());
        }
        if let Some(path) = snapshot {
            command.env("CACHETTE_RUN_SNAPSHOT", path);
        }
        if let Some(path) = metrics {
            command.env("CACHETTE_RUN_METRICS", path);
        }
        if let Some(text) = &config {
            command.env(CONFIG, text);
        }
        if progress::is_hidden() {
            command.env("CACHETTE_RUN_QUIET", "1");
        } else {
            tell(&drivers, config.or_else(inherited).as_deref());
        }
        if is_static(program) {
            let name = Path::new(program).display();
            eprintln!("cachette: {name} is statically linked, so no library can be put in front of its driver");
        }
        let error = command.exec();
        Err(CliError::Program { program: program.into(), error })
    }

    /// The configuration of the program; `None` if the environment's stays.
    fn configuration(&self) -> Result<Option<String>, CliError> {
        let text = self.config.clone().or_else(|| self.limit.and_then(|_| inherited()));
        if let Some(text) = &text {
            let config: Config = text.parse()?;
            if self.limit.is_some() && (config.memory_limit().is_some() || config.memory_fraction().is_some()) {
                return Err(CliError::LimitTwice { config: text.clone(), option: "--limit" });
            }
        }
        let limit = self.limit.map(|bytes| Config::builder().memory_limit(bytes).build()).transpose()?;
        let limit = limit.map(|limit| limit.to_string());
        let parts: Vec<_> = [text.filter(|text| !text.is_empty()), limit].into_iter().flatten().collect();
        Ok((self.config.is_some() || !parts.is_empty()).then(|| parts.join(",")))
    }
}

/// The configuration of the environment, which the front reads.
fn inherited() -> Option<String> {
    env::var(CONFIG).ok().filter(|text| !text.is_empty())
}

/// A variable of the loader that begins with one more path.
fn before(variable: &str, path: &Path) -> OsString {
    let mut value = path.as_os_str().to_owned();
    if let Some(rest) = env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(rest);
    }
    value
}

/// The full path of a snapshot that can be written.
fn snapshot_file(path: &Path) -> Result<PathBuf, CliError> {
    check_ending(path)?;
    writable(path)
}

/// The full path of a file that can be written.
fn writable(path: &Path) -> Result<PathBuf, CliError> {
    output::check(path)?;
    absolute(path).map_err(|error| CliError::OutputFile { path: path.to_owned(), error })
}

fn tell(drivers: &[Driver], config: Option<&str>) {
    let found: Vec<_> = drivers.iter().map(|driver| driver.file.display().to_string()).collect();
    let config = config.map_or(String::new(), |text| format!(", configuration {text}"));
    eprintln!("cachette: in front of {}{config}", found.join(" and "));
}

/// Whether a program has no dynamic section. What is no such file is left to the system.
fn is_static(program: &OsStr) -> bool {
    let by_name =
        || env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file());
    let path = if Path::new(program).components().count() > 1 { Some(program.into()) } else { by_name() };
    let bytes = path.and_then(|path| fs::read(path).ok());
    bytes.is_some_and(|bytes| elf::is_program(&bytes) && elf::describe(&bytes).is_none())
}

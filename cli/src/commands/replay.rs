//! `cachette replay`: the memory and time of a recorded program.

mod capacity;
mod fits;
mod named;
mod passes;
mod recorded;
mod row;
mod saving;

use std::convert::Infallible;
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use cachette::Config;
use cachette_replay::target::HOST;
use cachette_replay::{Target, Trace};
use cachette_snapshot::Snapshot;
use clap::Args;

use super::bench::device_line;
use super::choice::Choice;
use super::{CONFIG, progress, size};
use crate::error::CliError;
use crate::json::JsonFile;
use capacity::Answer;
use named::{Compare, Named};
use row::{Found, Row, judge, write_failures};

/// Phantom memory of the host device: as much as a large card has.
const PHANTOM: u64 = 141 << 30;

/// Replays recorded allocations, and reports memory and time
///
/// A trace has one operation per line, `a ID SIZE STREAM` or `f ID`, or a comment after `#`. It may be compressed with
/// gzip. A snapshot with a history, from PyTorch or Cachette, works too; the last line then compares the replay with
/// the recorded run. Without a configuration and a limit, direct segments (plain caching) are replayed beside the
/// default, and a line says in words what the default saves. Each trace is replayed three times in the same allocator:
/// cold, warm and steady. Peaks are those of the first pass. Times are nanoseconds per operation, and calls are driver
/// calls per pass. Exit code 1 if a replay runs out of memory, 2 if the request is invalid.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The traces, or snapshots
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    /// Uses the backend host with this much phantom memory, such as 80GB [default: 141G]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, allow_hyphen_values = true)]
    phantom: Option<u64>,
    /// A configuration, as in `CACHETTE_ALLOC_CONF`; each one adds a row per trace
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    config: Vec<Config>,
    /// Compares direct and elastic segments: a row per trace for each
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "segments", conflicts_with = "config")]
    compare: Option<Compare>,
    /// Limits the allocator to this much memory, such as 8G, and shows where each configuration runs out
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, allow_hyphen_values = true)]
    limit: Option<u64>,
    /// Finds the smallest limit that the first pass fits in, to 2 MiB, in phantom memory
    ///
    /// It bisects between the requested bytes and the bytes reserved without a limit, or above if that is not enough.
    /// Fitting is nearly but not strictly monotonic: the result fits when run again, and 2 MiB less does not, but some
    /// smaller limit may fit too.
    #[arg(long, conflicts_with = "limit")]
    fit: bool,
    /// Says in words whether each run fits on a device of this size, such as 80GB
    ///
    /// It compares PyTorch's allocator, PyTorch's expandable segments and Cachette. The driver and its libraries take
    /// part of a device too, about 0.5 GiB for CUDA: give the size that is left to the program. Exit code 1 if a run
    /// does not fit with Cachette.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, allow_hyphen_values = true, requires = "fit")]
    #[arg(conflicts_with_all = ["config", "compare", "phantom"])]
    device_size: Option<u64>,
    /// Replays the history of this device, of snapshots that have several
    #[arg(long, value_name = "N")]
    recorded_device: Option<u32>,
    /// Also writes the results to this file; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Removed
    #[arg(long = "batch", hide = true, value_name = "N,N,…")]
    #[arg(value_parser = removed("draw a line through the bytes `needed` of each run, which --json writes"))]
    _batch: Option<Infallible>,
    /// Removed
    #[arg(long = "html", hide = true, value_name = "FILE")]
    #[arg(value_parser = removed("use --json, or `cachette snapshot view` for the memory of the recorded run"))]
    _html: Option<Infallible>,
}

/// Refuses the value of a removed option.
fn removed(instead: &'static str) -> impl Fn(&str) -> Result<Infallible, String> + Clone {
    move |_| Err(format!("this option was removed; {instead}"))
}

impl Replay {
    pub(super) fn run(mut self) -> Result<(), CliError> {
        let is_beside_direct = self.is_beside_direct();
        let configs = self.configs()?;
        self.check_configs(&configs)?;
        if self.config.is_empty() && env::var_os(CONFIG).is_some_and(|text| !text.is_empty()) && !progress::is_hidden()
        {
            eprintln!("cachette: {CONFIG} is not replayed; name a configuration by --config");
        }
        let target = self.open()?;
        self.check_limit(&target)?;
        let traces = self.open_traces()?;
        let results = Results { target: &target, file: JsonFile::create(self.json.as_deref())? };
        if let Some(bytes) = self.device_size {
            return results.deliver_answers(&capacity::ask_all(&target, &traces, bytes)?);
        }
        if self.fit {
            let rows = fits::fit_all(&target, &traces, &configs);
            return results.deliver(&rows, |out| fits::write(out, &rows));
        }
        let mut rows = passes::replay_all(&target, &traces, &configs, self.limit);
        if is_beside_direct {
            saving::set(&mut rows);
        }
        results.deliver(&rows, |out| {
            passes::write(out, &rows)?;
            write_failures(out, &rows)?;
            recorded::write(out, &traces, &rows)?;
            if is_beside_direct { saving::write(out, &target, &rows) } else { Ok(()) }
        })
    }

    fn open_traces(&self) -> Result<Vec<Trace>, CliError> {
        let open = |path: &PathBuf| {
            if Snapshot::is_likely(path) { Trace::open_recorded(path, self.recorded_device) } else { Trace::open(path) }
        };
        let traces = self.traces.iter().map(open);
        Ok(traces.collect::<Result<_, _>>()?)
    }

    /// Whether direct segments are replayed beside the default. A limit may be too small for one of them alone.
    const fn is_beside_direct(&self) -> bool {
        self.config.is_empty() && self.compare.is_none() && self.limit.is_none() && !self.fit
    }

    fn configs(&mut self) -> Result<Vec<Named>, CliError> {
        if let Some(compare) = self.compare {
            return Ok(Named::compared(compare)?);
        }
        if self.is_beside_direct() {
            return Ok(Named::beside_direct()?);
        }
        if self.config.is_empty() {
            self.config.push(Config::default());
        }
        Ok(self.config.drain(..).map(Named::written).collect())
    }

    fn open(&mut self) -> Result<Target, CliError> {
        let phantom = [("--phantom", self.phantom.is_some()), ("--fit", self.fit)];
        if let Some((option, _)) = phantom.into_iter().find(|(_, given)| *given) {
            let backend = self.choice.backend.get_or_insert_with(|| HOST.to_owned());
            if backend != HOST {
                let backend = backend.clone();
                return Err(CliError::HostAlone { option, backend });
            }
        }
        // A run that does not fit must still find out what it needs.
        let least = self.device_size.map_or(PHANTOM, |bytes| PHANTOM.max(bytes.saturating_mul(4)));
        Ok(self.choice.open(self.phantom.unwrap_or(least))?)
    }

    fn check_configs(&self, configs: &[Named]) -> Result<(), CliError> {
        let options = [("--limit", self.limit.is_some()), ("--fit", self.fit)];
        let limiting = options.into_iter().find(|(_, given)| *given);
        let limited = configs.iter().find(|named| named.is_limited());
        match (limiting, limited) {
            (Some((option, _)), Some(named)) => Err(CliError::LimitTwice { config: named.text(), option }),
            _ => Ok(()),
        }
    }

    fn check_limit(&self, target: &Target) -> Result<(), CliError> {
        let total = target.device.info().total_memory;
        match self.limit {
            Some(limit) if limit > total => Err(CliError::LimitTooLarge { limit, total }),
            _ => Ok(()),
        }
    }
}

/// The destinations of results.
struct Results<'a> {
    target: &'a Target,
    file: JsonFile,
}

impl Results<'_> {
    /// Prints the output of `write`, writes the file, and checks for failures.
    fn deliver<T: Found>(
        self,
        rows: &[Row<T>],
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CliError> {
        self.file.print(|out| {
            writeln!(out, "{}", device_line(self.target))?;
            write(out)
        })?;
        self.file.write(&rows)?;
        judge(rows)
    }

    /// Prints and writes the answers to `--device-size`.
    fn deliver_answers(self, answers: &[Answer]) -> Result<(), CliError> {
        self.file.print(|out| capacity::write(out, answers))?;
        self.file.write(&serde_json::json!({ "runs": answers }))?;
        capacity::judge(answers)
    }
}

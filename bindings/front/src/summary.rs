//! The report at the end of a program behind `cachette run`.
//!
//! `cachette run` replaces itself by the program, so the front reports. Programs that use the front at link time get no
//! report.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::{env, fmt, fs, process as this};

use cachette::history::HistoryOptions;
use cachette::human::Bytes;
use cachette::snapshot::{BlockState, Snapshot, SnapshotOptions, save as save_to};
use cachette::{Metrics, OutsideStats};
use cachette_process::{self as process, write_line};
use cachette_snapshot::replace_file;

use crate::library::loaded;
use crate::{entry, signals};

/// The process that `cachette run` started, by its number.
const RUN: &str = "CACHETTE_RUN";
/// The folder of libraries that `cachette run` made.
pub(crate) const RUN_FOLDER: &str = "CACHETTE_RUN_FOLDER";
/// The file for a snapshot.
const RUN_SNAPSHOT: &str = "CACHETTE_RUN_SNAPSHOT";
/// The file for metrics.
const RUN_METRICS: &str = "CACHETTE_RUN_METRICS";
/// Set if there are to be no lines.
const RUN_QUIET: &str = "CACHETTE_RUN_QUIET";

/// The process that reports memory at its end; a forked child inherits the number and is another one.
static REPORTS: AtomicU32 = AtomicU32::new(0);

/// Whether the program has come to its end. Held by a thread that reports: at the end, drivers may be unloaded.
static IS_OVER: Mutex<bool> = Mutex::new(false);

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded_in;

extern "C" fn loaded_in() {
    if started_here() {
        // SAFETY: the function takes nothing and does not unwind.
        unsafe { libc::atexit(report_none) };
    }
}

/// Whether `cachette run` started this very process.
fn started_here() -> bool {
    env::var(RUN).is_ok_and(|number| number.parse() == Ok(this::id()))
}

/// Records a history from now on, if a snapshot is wanted.
pub(crate) fn record() {
    if wants_snapshot() {
        process::record_history(Some(HistoryOptions::new()));
    }
}

/// Reports at the end of this process, before the driver ends.
pub(crate) fn at_exit() {
    let id = this::id();
    if env::var_os(RUN).is_some() && REPORTS.swap(id, Relaxed) != id {
        // SAFETY: the function takes nothing and does not unwind.
        unsafe { libc::atexit(report) };
        signals::start();
    }
}

extern "C" fn report() {
    if REPORTS.load(Relaxed) == this::id() {
        signals::stop();
        if ends_in_a_call() {
            return;
        }
        while_running(report_all);
        *IS_OVER.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// Returns whether the program ends inside a call of the driver, and says so.
///
/// A signal handler that ends the process may have interrupted a call of this thread, which holds locks or was changing
/// the heap of the C library. Nothing may be allocated then.
fn ends_in_a_call() -> bool {
    let ends = entry::is_inside();
    if ends {
        let text = b"cachette: the program ended inside a call of the driver, so there is no report\n";
        // SAFETY: the bytes are valid for reading.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
    ends
}

/// Does `work` unless the program has come to its end. Returns whether it had not.
pub(crate) fn while_running(work: impl FnOnce()) -> bool {
    let is_over = IS_OVER.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_over {
        // A defect must not change the program's exit status.
        let _ = catch_unwind(AssertUnwindSafe(work));
    }
    !*is_over
}

/// Writes everything that a program reports.
pub(crate) fn report_all() {
    tell_all();
    save();
    write_metrics();
}

pub(crate) fn wants_snapshot() -> bool {
    env::var_os(RUN_SNAPSHOT).is_some()
}

pub(crate) fn wants_metrics() -> bool {
    env::var_os(RUN_METRICS).is_some()
}

fn is_quiet() -> bool {
    env::var_os(RUN_QUIET).is_some()
}

/// Reports that the program never came here.
extern "C" fn report_none() {
    // The first call may still be opening the driver.
    if REPORTS.load(Relaxed) == 0 && !ends_in_a_call() && started_here() && !is_quiet() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        // A program that opened the driver by `dlmopen` has a second front, which reports.
        if copies(&maps) > 1 {
            return;
        }
        let folder = env::var_os(RUN_FOLDER).map(PathBuf::from);
        let by_name =
            ["libcuda.so", "libamdhip64"].into_iter().filter_map(|stem| loaded(&maps, stem, folder.as_deref()));
        let named = ["CACHETTE_RUN_CUDA", "CACHETTE_RUN_HIP"].into_iter().filter_map(env::var_os).map(PathBuf::from);
        let mut drivers = by_name.chain(named.filter(|path| path.to_str().is_some_and(|path| maps.contains(path))));
        let why = match drivers.next() {
            None => "it loaded neither libcuda nor libamdhip64. Its child processes report for themselves".to_owned(),
            Some(path) => format!(
                "it loaded {} and made no request there, or the driver refused it. Memory of other calls, such as \
                 arrays, is the driver's; so is that of a library which opens the driver by its full path",
                path.display()
            ),
        };
        write_line(format_args!("{} asked the driver for no memory: {why}", program()));
    }
}

/// How often this library is loaded, by the mappings of a process: each copy begins with the start of the file.
fn copies(maps: &str) -> usize {
    let own = copies as *const () as usize;
    let holds = |line: &&str| {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
        range.is_some_and(|(start, end)| (number(start)..number(end)).contains(&own))
    };
    let file = |line: &str| line.split_ascii_whitespace().nth(5).map(str::to_owned);
    let Some(front) = maps.lines().find(holds).and_then(file) else { return 0 };
    let begins =
        |line: &&str| line.split_ascii_whitespace().nth(2).is_some_and(|offset| offset.bytes().all(|b| b == b'0'));
    maps.lines().filter(begins).filter(|line| file(line).as_ref() == Some(&front)).count()
}

fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{name} (process {})", this::id())
}

fn tell_all() {
    if is_quiet() {
        return;
    }
    for (device, allocator) in process::opened() {
        let stats = allocator.stats();
        let requests = stats.allocation.all.allocated;
        let calls = stats.num_device_alloc + stats.num_device_free;
        write_line(format_args!(
            "{}, device {device}: peak {}, reserved {}, requests {requests}, hits {}, driver calls {calls}, out of memory \
             {}{}{}",
            program(),
            Bytes(stats.allocated_bytes.all.peak),
            Bytes(stats.reserved_bytes.all.peak),
            requests.saturating_sub(stats.num_device_alloc),
            stats.num_ooms,
            Outside(allocator.outside()),
            Unfreed(&process::snapshot(Some(device), SnapshotOptions::new().traces(false))),
        ));
    }
}

/// The most that the program held past the cache, and what it has not given back.
struct Outside(OutsideStats);

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = ["outside", "outside managed", "outside pinned"].into_iter().zip(self.0.by_kind());
        let named = named.map(|(name, (_, stat))| (name, stat)).filter(|(_, stat)| stat.peak > 0);
        named.clone().try_for_each(|(name, stat)| write!(f, ", {name} {}", Bytes(stat.peak)))?;
        let mut kept = named.filter(|(_, stat)| stat.current > 0);
        kept.try_for_each(|(name, stat)| write!(f, ", not freed {name}: {}", Bytes(stat.current)))
    }
}

/// What was not freed, by label.
struct Unfreed<'a>(&'a Snapshot);

impl fmt::Display for Unfreed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_label = BTreeMap::new();
        for block in self.0.segments.iter().flat_map(|segment| &segment.blocks) {
            if block.state == BlockState::Allocated {
                *by_label.entry(self.0.texts.get(block.label)).or_insert(0) += block.bytes;
            }
        }
        by_label.iter().try_for_each(|(label, bytes)| write!(f, ", not freed by {label}: {}", Bytes(*bytes)))
    }
}

/// The file that a variable names. Child processes add their number to the name.
fn file_of(variable: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from)?;
    Some(if started_here() { path } else { numbered(&path, this::id()) })
}

/// Writes the snapshot.
pub(crate) fn save() {
    let Some(path) = file_of(RUN_SNAPSHOT) else { return };
    let snapshot = process::snapshot(None, SnapshotOptions::default());
    match save_to(&snapshot, &path) {
        Ok(()) if is_quiet() => {}
        Ok(()) => write_line(format_args!("snapshot in {}; draw it by `cachette snapshot view`", path.display())),
        Err(error) => write_line(error),
    }
}

/// Writes the metrics of every device. A reader never sees a partial page.
pub(crate) fn write_metrics() {
    static REFUSED: process::FirstOnly = process::FirstOnly::new();
    let Some(path) = file_of(RUN_METRICS) else { return };
    let all: Vec<_> = process::opened().map(|(_, allocator)| allocator.metrics()).collect();
    let mut page = String::new();
    // Writing to text never fails.
    let _ = Metrics::write_all(&all, &mut page, &[]);
    if let Err(error) = replace_file(&path, |file| file.write_all(page.as_bytes())) {
        REFUSED.tell(format_args!("cannot write metrics to '{}': {error}", path.display()));
    }
}

/// `memory.json` as `memory.42.json`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("{number}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_counted_once() {
        assert_eq!(copies(&fs::read_to_string("/proc/self/maps").unwrap()), 1);
    }

    #[test]
    fn child_processes_write_files_of_their_own() {
        assert_eq!(numbered(Path::new("/tmp/memory.json"), 42), Path::new("/tmp/memory.42.json"));
    }
}

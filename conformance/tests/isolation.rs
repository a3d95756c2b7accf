//! The suite survives a driver that ends its process: with child processes, that costs one case.

use std::process::{ExitCode, abort, id};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cachette_conformance::{Fixture, Opened, Options, Report, cases, child, run};
use cachette_hal_host::{HostBackend, HostConfig};
use libtest_mimic::{Arguments, Failed, Trial};

/// The first case of its group, one between others, and the last.
const ABORTS: [&str; 3] = [
    "memory::addresses_are_aligned",
    "memory::zero_bytes_is_an_invalid_value",
    "memory::nothing_is_lost_over_many_rounds",
];
const HANGS: &str = "memory::content_is_kept";
const STOPS: &str = "errors::they_name_the_call_and_the_remedy";

unsafe extern "C" {
    safe fn kill(process: i32, signal: i32) -> i32;
}

/// The signal that stops a process without its consent.
const STOP: i32 = 19;

/// Opens a device that misbehaves in some cases; each case opens it on a thread of its name.
fn open() -> Opened {
    match thread::current().name() {
        Some(name) if ABORTS.contains(&name) => abort(),
        Some(HANGS) => loop {
            thread::park();
        },
        Some(STOPS) => _ = kill(i32::try_from(id()).expect("a process id is an int"), STOP),
        _ => {}
    }
    let backend = HostBackend::new(HostConfig::default().devices(2).capacity(256 << 20));
    Ok(Arc::new(backend.map_err(|error| error.to_string())?))
}

fn fixture() -> Arc<Fixture> {
    Arc::new(Fixture::new("backend", open).isolated().containing_faults())
}

/// How long a case may take; the sound ones take a fraction.
const LIMIT: Duration = Duration::from_secs(4);

fn report(filter: &str, isolate: bool) -> Result<Report, Failed> {
    let filter = Some(filter.to_owned());
    run(&fixture(), &Options { filter, threads: 2, limit: LIMIT, isolate, ..Options::default() }).map_err(Failed::from)
}

/// The failures of a report, as one text.
fn failures(report: &Report) -> Vec<String> {
    report.failures().map(|case| format!("{}: {}", case.name, case.outcome)).collect()
}

fn expect(holds: bool, report: &Report) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(report.to_string().into()) }
}

/// Every case but those that misbehave passes, and the files have all of them.
fn crashes() -> Result<(), Failed> {
    let report = report("memory::", true)?;
    let wanted = cases().iter().filter(|case| case.group() == "memory");
    let (wanted, found) = (wanted.map(|case| case.name), report.cases.iter().map(|case| case.name));
    expect(wanted.eq(found), &report)?;
    let failed = failures(&report);
    let mut expected = vec![format!("{HANGS}: failed: hung: {HANGS} did not finish within 4 s")];
    for name in ABORTS {
        expected.push(format!("{name}: failed: the process ended (signal: 6 (SIGABRT)), in {name}"));
    }
    expect(failed.len() == expected.len() && expected.iter().all(|line| failed.contains(line)), &report)?;
    let (json, junit) = (report.to_json(), report.to_junit());
    let complete = report.cases.iter().all(|case| json.contains(case.name));
    expect(complete && junit.matches("<testcase ").count() == report.cases.len(), &report)
}

/// A process that does not even answer is ended.
fn stops() -> Result<(), Failed> {
    let report = report("errors::", true)?;
    let stopped = format!("{STOPS}: failed: hung: the process said nothing for 8 s, in {STOPS}");
    expect(failures(&report) == [stopped], &report)
}

/// Without a crash, children change no outcome.
fn same() -> Result<(), Failed> {
    let [isolated, here] = [report("host_memory::", true)?, report("host_memory::", false)?];
    let outcomes =
        |report: &Report| -> Vec<_> { report.cases.iter().map(|case| (case.name, case.outcome.to_string())).collect() };
    expect(outcomes(&isolated) == outcomes(&here) && here.is_success(), &isolated)
}

fn main() -> ExitCode {
    child::play_if_child(&fixture());
    let trials = vec![
        Trial::test("a_crash_or_a_hang_fails_one_case", crashes),
        Trial::test("a_process_that_stops_is_ended", stops),
        Trial::test("children_change_no_outcome", same),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

//! Runs cases, each on a fresh backend and under a watchdog.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cachette_hal::{AnyDevice, Backend, Error, Ordinal};

use crate::case::Case;
use crate::deviations::{DEVIATIONS, judge};
use crate::exit::note_hang;
use crate::failure::{Stop, Verdict};
use crate::filter::{Filter, FilterError};
use crate::fixture::Fixture;
use crate::report::{CaseReport, Header, Outcome, Report};
use crate::rig::Subject;
use crate::{cases, child, isolate};

/// How long a case may take before it counts as hung.
pub const LIMIT: Duration = Duration::from_secs(180);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cases, as a [`Filter`]; `None` for all.
    pub filter: Option<String>,
    /// The device; `None` for that of the fixture.
    pub ordinal: Option<Ordinal>,
    /// The number of cases that run at once; always one on a fixture that is not isolated.
    pub threads: usize,
    /// How long a case may take before it counts as hung.
    pub limit: Duration,
    /// Whether each group of cases runs in a child process. A driver that ends its process then fails one case, and
    /// the others run in a further child. Slower, since each child opens the backend.
    pub isolate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { filter: None, ordinal: None, threads: 1, limit: LIMIT, isolate: false }
    }
}

/// Why no case was run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The filter selects no case.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The backend did not open.
    #[error("the backend did not open: {0}")]
    Backend(String),
    /// The device did not open.
    #[error("device {0} did not open: {1}")]
    Device(Ordinal, Error),
}

/// Runs the selected cases against a fixture.
///
/// In a child process of a case, it runs the child's role and does not return.
pub fn run(fixture: &Arc<Fixture>, options: &Options) -> Result<Report, RunError> {
    run_with(fixture, options, |_, _| {})
}

/// Does the same as [`run`], and calls `ended` for each case, in order, once it and all earlier ones have ended.
///
/// So the caller knows which case was next if the driver ends the process.
pub fn run_with(
    fixture: &Arc<Fixture>,
    options: &Options,
    ended: impl FnMut(&Header, &CaseReport) + Send,
) -> Result<Report, RunError> {
    child::play_if_child(fixture);
    let chosen = match &options.filter {
        Some(text) => Filter::parse(text)?.select(cases())?,
        None => cases().iter().collect(),
    };
    let bench = Bench::open(fixture, options.ordinal)?;
    let header = bench.header();
    let threads = if fixture.is_isolated { options.threads.max(1) } else { 1 };
    let parts: Vec<&[&Case]> = if options.isolate {
        chosen.chunk_by(|a, b| a.group() == b.group()).collect()
    } else {
        chosen.chunks(1).collect()
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Done { reports: Vec::with_capacity(chosen.len()), waiting: BTreeMap::new(), ended });
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: the counter only distributes positions, and the lock publishes the results.
                while let Some((index, part)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    parts.get(index).map(|part| (index, *part))
                } {
                    let mut position = parts[..index].iter().map(|part| part.len()).sum();
                    bench.run_part(part, options, |report| {
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.insert(&header, position, report);
                        position += 1;
                    });
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Report::new(header, done.reports))
}

struct Done<F> {
    /// The reports of the first cases, in order.
    reports: Vec<CaseReport>,
    /// Later ones, by position.
    waiting: BTreeMap<usize, CaseReport>,
    ended: F,
}

impl<F: FnMut(&Header, &CaseReport)> Done<F> {
    fn insert(&mut self, header: &Header, position: usize, report: CaseReport) {
        self.waiting.insert(position, report);
        while let Some(report) = self.waiting.remove(&self.reports.len()) {
            (self.ended)(header, &report);
            self.reports.push(report);
        }
    }
}

/// A fixture with one open device, for its facts; cases open their own.
pub(crate) struct Bench {
    pub(crate) fixture: Arc<Fixture>,
    backend: Arc<dyn Backend>,
    device: AnyDevice,
    pub(crate) ordinal: Ordinal,
    count: u32,
}

impl Bench {
    pub(crate) fn open(fixture: &Arc<Fixture>, ordinal: Option<Ordinal>) -> Result<Self, RunError> {
        let ordinal = ordinal.unwrap_or_else(|| fixture.ordinal);
        let backend = fixture.open().map_err(RunError::Backend)?;
        let device = backend.open(ordinal).map_err(|error| RunError::Device(ordinal, error))?;
        let count = backend.device_count().map_err(|error| RunError::Device(ordinal, error))?;
        Ok(Self { fixture: Arc::clone(fixture), backend, device, ordinal, count })
    }

    pub(crate) fn header(&self) -> Header {
        Header::new(self.fixture.name.clone(), self.backend.info(), self.device.info())
    }

    /// Returns why the case cannot run on the device; `None` if it can.
    pub(crate) fn obstacle(&self, case: &Case) -> Option<String> {
        case.obstacle(&*self.device, self.count)
    }

    /// Runs some cases, here or in child processes, and reports each at its end.
    fn run_part(&self, part: &[&Case], options: &Options, mut ended: impl FnMut(CaseReport)) {
        if options.isolate {
            isolate::run(self, part, options.limit, ended);
        } else {
            for case in part {
                ended(self.run(case, options.limit));
            }
        }
    }

    /// Runs one case and judges it.
    pub(crate) fn run(&self, case: &Case, limit: Duration) -> CaseReport {
        let started = Instant::now();
        let outcome = match self.obstacle(case) {
            Some(reason) => Outcome::Skipped { reason },
            None => watch(Arc::clone(&self.fixture), self.ordinal, *case, limit),
        };
        self.report(case, outcome, started)
    }

    /// Judges the outcome of a case that ends now.
    pub(crate) fn report(&self, case: &Case, outcome: Outcome, started: Instant) -> CaseReport {
        CaseReport {
            name: case.name,
            about: case.about,
            outcome: judge(DEVIATIONS, self.backend.info(), case.name, outcome),
            seconds: started.elapsed().as_secs_f64(),
        }
    }
}

/// Runs a case on a separate thread and abandons it after `limit`.
fn watch(fixture: Arc<Fixture>, ordinal: Ordinal, case: Case, limit: Duration) -> Outcome {
    let (send, receive) = mpsc::sync_channel(1);
    let spawned = thread::Builder::new().name(case.name.to_owned()).spawn(move || {
        let verdict = catch_unwind(AssertUnwindSafe(|| (case.run)(&Subject::open(fixture, ordinal)?)));
        // The receiver is dropped if the case was abandoned.
        let _ = send.send(verdict);
    });
    if let Err(error) = spawned {
        return Outcome::Failed { text: format!("no thread to run on: {error}") };
    }
    if let Ok(verdict) = receive.recv_timeout(limit) {
        return outcome(verdict);
    }
    note_hang();
    Outcome::Failed { text: format!("hung: {} did not finish within {} s", case.name, limit.as_secs_f32()) }
}

fn outcome(verdict: thread::Result<Verdict>) -> Outcome {
    match verdict {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Stop::Failed(text))) => Outcome::Failed { text },
        Ok(Err(Stop::Skipped(reason))) => Outcome::Skipped { reason },
        Err(panic) => Outcome::Failed { text: format!("panicked: {}", message(&*panic)) },
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const CASE: Case = Case {
        name: "runner::case",
        about: "A case for the runner's own tests.",
        needs: &[],
        devices: 1,
        child: false,
        run: |_| Ok(()),
    };

    fn host() -> Arc<Fixture> {
        let open = || {
            let backend = cachette_hal_host::HostBackend::new(cachette_hal_host::HostConfig::default())
                .map_err(|error| error.to_string())?;
            Ok(Arc::new(backend) as Arc<dyn Backend>)
        };
        Arc::new(Fixture::new("backend", open))
    }

    fn outcome_of(run: fn(&Subject) -> Verdict, limit: Duration) -> Outcome {
        let case = Case { run, ..CASE };
        Bench::open(&host(), None).unwrap().run(&case, limit).outcome
    }

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let outcome = outcome_of(|_| panic!("on purpose"), LIMIT);
        assert_eq!(outcome.to_string(), "failed: panicked: on purpose");
    }

    #[test]
    fn a_hang_is_a_failure_that_names_the_case() {
        let hang = |_: &Subject| {
            thread::sleep(Duration::from_secs(5));
            Ok(())
        };
        let outcome = outcome_of(hang, Duration::from_millis(50));
        assert!(outcome.to_string().contains("hung: runner::case"), "{outcome}");
    }

    #[test]
    fn a_case_may_skip_itself() {
        let outcome = outcome_of(|_| Err(Stop::skipped("no reason")), LIMIT);
        assert_eq!(outcome.to_string(), "skipped: no reason");
    }

    #[test]
    fn too_few_devices_skip_a_case() {
        let case = CASE.on_devices(9);
        let outcome = Bench::open(&host(), None).unwrap().run(&case, LIMIT).outcome;
        assert_eq!(outcome.to_string(), "skipped: needs 9 devices, found 1");
    }

    #[test]
    fn what_does_not_open_is_an_error_and_not_a_report() {
        let absent = Arc::new(Fixture::new("backend", || Err("not installed".to_owned())));
        let error = run(&absent, &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), "the backend did not open: not installed");
        let options = Options { ordinal: Some(Ordinal(7)), ..Options::default() };
        let error = run(&host(), &options).unwrap_err();
        assert!(error.to_string().starts_with("device 7 did not open"), "{error}");
    }

    #[test]
    fn a_case_is_told_as_soon_as_it_and_all_earlier_ones_have_ended() {
        let bench = Bench::open(&host(), None).unwrap();
        let told = RefCell::new(Vec::new());
        let ended = |_: &Header, report: &CaseReport| told.borrow_mut().push(report.name);
        let mut done = Done { reports: Vec::new(), waiting: BTreeMap::new(), ended };
        let mut end = |position, name| {
            done.insert(&bench.header(), position, bench.run(&Case { name, ..CASE }, LIMIT));
            told.borrow().len()
        };
        assert_eq!([end(1, "second"), end(3, "fourth"), end(0, "first"), end(2, "third")], [0, 0, 2, 4]);
        assert_eq!(*told.borrow(), ["first", "second", "third", "fourth"]);
    }

    #[test]
    fn a_filter_that_matches_nothing_runs_nothing() {
        let options = Options { filter: Some("events::nothing".into()), ..Options::default() };
        assert!(matches!(run(&host(), &options), Err(RunError::Filter(_))));
    }
}

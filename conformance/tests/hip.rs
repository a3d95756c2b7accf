//! The suite against HIP: AMD's library where it shows a device, else every version that is emulated.

use std::collections::BTreeMap;
use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use cachette_conformance::{Case, Fixture, Opened, Options, Outcome, cases, child, exit_if_hung, run};
use cachette_emulated_hip::{Personality, install};
use cachette_hal::Backend;
use cachette_hal_hip::{Candidate, HipBackend};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// AMD's library, or a version of it that is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Real,
    Emulated(Personality),
}

impl Subject {
    fn name(self) -> String {
        match self {
            Self::Real => "hip".to_owned(),
            Self::Emulated(personality) => format!("emulated-hip-{personality}"),
        }
    }

    fn load(self) -> Result<HipBackend, String> {
        let personality = match self {
            Self::Real => return HipBackend::load().map_err(|error| error.to_string()),
            Self::Emulated(personality) => personality,
        };
        let library = install(personality).map_err(|error| error.to_string())?;
        // SAFETY: the emulated library keeps to AMD's C interface.
        let loaded = unsafe { HipBackend::load_from(&[Candidate::Path(library)]) };
        loaded.map_err(|error| error.to_string())
    }

    fn fixture(self) -> Arc<Fixture> {
        let open = move || -> Opened { Ok(Arc::new(self.load()?)) };
        let joined = Fixture::new(self.name(), open);
        match self {
            // A bad access of a real device may take others with it.
            Self::Real => Arc::new(joined),
            Self::Emulated(_) => Arc::new(joined.containing_faults()),
        }
    }
}

/// What is tested here: the real library if it shows a device, else all that are emulated.
///
/// A library that the user has named is tested even if it fails, for then that is the result. One version
/// alone if the environment names it, and 7.2 alone over a real device, which several would share.
fn subjects() -> Vec<Subject> {
    let named = env::var_os("CACHETTE_HIP_LIBRARY").is_some_and(|path| !path.is_empty());
    if named || Subject::Real.load().is_ok() {
        return vec![Subject::Real];
    }
    let named = env::var("CACHETTE_EMULATED_HIP").ok();
    let over = env::var_os("CACHETTE_EMULATED_OVER").map(|_| Personality::V7_2);
    match named.and_then(|name| name.parse().ok()).or(over) {
        Some(personality) => vec![Subject::Emulated(personality)],
        None => Personality::ALL.map(Subject::Emulated).to_vec(),
    }
}

/// Says whose results these are, or why there will be none.
fn announce(subject: Subject) {
    match subject.load() {
        Ok(backend) => {
            let info = backend.info();
            let whose = if info.emulated { "emulated" } else { "AMD's" };
            eprintln!("HIP {} ({whose}), from {}", info.version, info.library);
        }
        Err(why) => eprintln!("HIP does not load: {why}"),
    }
}

/// Runs one case, alone on its device.
fn run_case(subject: Subject, case: &Case, device: &Mutex<()>) -> Result<Completion, Failed> {
    let _alone = device.lock().unwrap_or_else(PoisonError::into_inner);
    let options = Options { filter: Some(case.name.to_owned()), ..Options::default() };
    let report = run(&subject.fixture(), &options)?;
    let found = report.cases.iter().find(|found| found.name == case.name);
    let outcome = found.map(|found| &found.outcome).ok_or("the case did not run")?;
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Skipped { .. } | Outcome::Deviates { .. } => Ok(Completion::ignored_with(outcome)),
        outcome => Err(format!("{outcome}\npromise: {}", case.about).into()),
    }
}

fn main() -> ExitCode {
    if let Some(name) = child::fixture_name() {
        let emulated = Personality::ALL.map(Subject::Emulated);
        let named = emulated.into_iter().find(|subject| subject.name() == name);
        child::play_if_child(&named.unwrap_or(Subject::Real).fixture());
    }
    let subjects = subjects();
    subjects.iter().copied().for_each(announce);
    let devices: BTreeMap<_, Arc<Mutex<()>>> = subjects.into_iter().map(|subject| (subject, Arc::default())).collect();
    // Neighbours are of different versions, so that cases wait for each other as little as they can.
    let trials = cases().iter().flat_map(|case| {
        devices.iter().map(move |(subject, device)| {
            let (subject, device) = (*subject, Arc::clone(device));
            let name = format!("{}::{}", subject.name(), case.name);
            Trial::ignorable_test(name, move || run_case(subject, case, &device))
        })
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.collect());
    exit_if_hung(if conclusion.has_failed() { 101 } else { 0 });
    conclusion.exit_code()
}

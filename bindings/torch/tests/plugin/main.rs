//! The promises of the plug-in, each case in its own process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod adapter;
mod bed;
mod captures;
mod cpp;
mod exceptions;
mod forks;
mod layouts;
mod memory;
mod pinned;
mod pools;
mod settings;
mod sharing;
mod starting;
mod watching;

use std::env;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// Names the case that a process is started for.
const CASE: &str = "CACHETTE_TORCH_CASE";

/// A promise, and how it is tested.
type Case = (&'static str, fn());

/// Variables that would change what a case finds.
const CONFIGURATIONS: [&str; 4] =
    ["CACHETTE_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Every case, with whether it needs what stands for PyTorch.
fn cases() -> impl Iterator<Item = (Case, bool)> {
    let all: [(&[Case], bool); 12] = [
        (starting::CASES, false),
        (settings::CASES, false),
        (memory::CASES, false),
        (pinned::CASES, false),
        (pools::CASES, false),
        (captures::CASES, true),
        (adapter::CASES, false),
        (sharing::CASES, false),
        (layouts::CASES, false),
        (watching::CASES, false),
        (forks::CASES, false),
        (exceptions::CASES, true),
    ];
    let each = |(cases, cpp): (&'static [Case], bool)| cases.iter().map(move |case| (*case, cpp));
    all.into_iter().flat_map(each)
}

fn main() -> ExitCode {
    if let Ok(wanted) = env::var(CASE) {
        let found = cases().find(|((name, _), _)| *name == wanted);
        let ((_, run), _) = found.expect("the name is a case's");
        run();
        return ExitCode::SUCCESS;
    }
    let trials = cases().map(|((name, _), cpp)| Trial::test(name, move || start(name, cpp)));
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.collect());
    cpp::clear();
    conclusion.exit_code()
}

/// Runs a case in its own process.
fn start(name: &str, cpp: bool) -> Result<(), Failed> {
    let mut command = Command::new(env::current_exe()?);
    for variable in CONFIGURATIONS {
        command.env_remove(variable);
    }
    if cpp && let Some(folder) = cpp::pytorch() {
        command.env(cpp::FOLDER, folder);
    }
    let output = command.env(CASE, name).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.starts_with(cpp::SKIPPED) {
        eprintln!("{name}: {}", said.trim_end());
    }
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}\n{said}", output.status).into())
}

//! A program in which a case hung ends with its own code.

use std::env;
use std::ffi::c_int;
use std::process::{Command, ExitCode, abort};
use std::sync::Arc;
use std::time::Duration;

use cachette_conformance::{Fixture, LIMIT, Opened, Options, exit_if_hung, run};
use cachette_hal_host::{HostBackend, HostConfig};
use libtest_mimic::{Arguments, Failed, Trial};

/// Names how long a case of the child may take, in seconds.
const SECONDS: &str = "CACHETTE_LEAVING_SECONDS";
/// The code that the child ends with.
const CODE: u8 = 7;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Stands for the destructors of a driver that a thread is still inside of.
extern "C" fn crash() {
    abort();
}

fn main() -> ExitCode {
    if let Ok(seconds) = env::var(SECONDS) {
        return child(&seconds);
    }
    let trials = vec![
        Trial::test("no_destructor_runs_after_a_hang", after_a_hang),
        Trial::test("they_run_where_no_case_hung", without_a_hang),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs one case under a limit, and leaves.
fn child(seconds: &str) -> ExitCode {
    let open = || -> Opened {
        let backend = HostBackend::new(HostConfig::default());
        Ok(Arc::new(backend.map_err(|error| error.to_string())?))
    };
    let fixture = Arc::new(Fixture::new("backend", open));
    let options = Options {
        filter: Some("events::wait_blocks_until_the_work_finished".to_owned()),
        limit: seconds.parse().map_or(LIMIT, Duration::from_secs),
        ..Options::default()
    };
    let report = run(&fixture, &options).expect("the case can be run");
    println!("{report}");
    // SAFETY: the handler takes nothing, and ends the process.
    unsafe { atexit(crash) };
    exit_if_hung(CODE);
    ExitCode::from(CODE)
}

/// How a child ends, and what it says.
fn ended(seconds: &str) -> Result<(Option<i32>, String), Failed> {
    let output = Command::new(env::current_exe()?).env(SECONDS, seconds).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.code(), said))
}

fn after_a_hang() -> Result<(), Failed> {
    let (code, said) = ended("0")?;
    if code == Some(CODE.into()) && said.contains("1 failed") {
        return Ok(());
    }
    Err(format!("it ended with {code:?}: {said}").into())
}

fn without_a_hang() -> Result<(), Failed> {
    let (code, said) = ended("60")?;
    if code.is_none() && said.contains("0 failed") {
        return Ok(());
    }
    Err(format!("it ended with {code:?}: {said}").into())
}

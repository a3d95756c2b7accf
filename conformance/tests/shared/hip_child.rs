//! Children of a test program, each with a separate environment.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use cachette_emulated_hip::{Personality, install};
use libtest_mimic::{Completion, Failed};

/// What a case does.
pub(crate) type Run = fn() -> Result<Completion, Failed>;

/// Names the role of a child.
pub(crate) const PART: &str = "CACHETTE_CHILD_PART";
/// Names the library, as users do.
pub(crate) const LIBRARY: &str = "CACHETTE_HIP_LIBRARY";

/// What a child says.
pub(crate) fn said_by(mut child: Command) -> Result<String, Failed> {
    let output = child.output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {text}\n{errors}", output.status).into());
    }
    Ok(text)
}

/// What a child says that loads `library` under the variables given.
pub(crate) fn child(part: &str, library: &Path, variables: &[(&str, &str)]) -> Result<String, Failed> {
    let mut child = Command::new(env::current_exe()?);
    child.env(PART, part).env(LIBRARY, library);
    child.envs(variables.iter().copied());
    said_by(child)
}

/// Compares what was said with what should have been.
pub(crate) fn expect(said: &str, promised: &str) -> Result<Completion, Failed> {
    if said == promised {
        return Ok(Completion::Completed);
    }
    Err(format!("said:     {said}\npromised: {promised}").into())
}

pub(crate) fn seven() -> Result<PathBuf, Failed> {
    Ok(install(Personality::V7_2)?)
}

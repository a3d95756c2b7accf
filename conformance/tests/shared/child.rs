//! Children of a test program, each with a separate environment.

use std::env;
use std::fs;
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
const CUDA_LIBRARY: &str = "CACHETTE_CUDA_LIBRARY";

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

/// What a child says that loads `library`, of either vendor, under the variables given.
pub(crate) fn child(part: &str, library: &Path, variables: &[(&str, &str)]) -> Result<String, Failed> {
    let mut child = Command::new(env::current_exe()?);
    child.env_remove("CUDA_VISIBLE_DEVICES");
    child.env(PART, part).env(LIBRARY, library).env(CUDA_LIBRARY, library);
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

/// What is said where no device is shown.
pub(crate) fn none_shown(library: &Path) -> String {
    format!(
        "{} shows no device; check that one is installed, that this user may open it, \
         and that no *_VISIBLE_DEVICES variable hides it",
        library.display()
    )
}

/// A library that is missing is named, and one that is a text is no library.
pub(crate) fn missing_or_text(name: &str) -> Result<Completion, Failed> {
    let refused = |path: &Path, why| {
        let said = child("open", path, &[])?;
        expect(&said, &format!("no driver library could be opened; tried {} ({why})", path.display()))
    };
    refused(&Path::new("/nowhere").join(name), "No such file or directory")?;
    let path = env::temp_dir().join(format!("cachette-{}-{name}", std::process::id()));
    fs::write(&path, "This is no library.\n".repeat(100))?;
    let said = refused(&path, "invalid ELF header");
    fs::remove_file(&path)?;
    said
}

/// Devices that vanish after so many calls are lost. Each lets the library come a little further.
pub(crate) fn lost_after(library: &Path, status: u32, calls: [&str; 3]) -> Result<Completion, Failed> {
    let lost = format!("the device is lost (status {status}); stop using the device");
    for calls in calls {
        let said = child("open", library, &[("CACHETTE_EMULATED_LOST_AFTER", calls)])?;
        if !said.contains(&lost) {
            return Err(format!("after {calls} calls: {said}").into());
        }
    }
    Ok(Completion::Completed)
}

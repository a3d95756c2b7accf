//! Children of a test program, each with a separate environment.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use cachette_emulated_hip::{Personality, install};
use cachette_hal::{AnyDevice, Backend, Device, Feature, Ordinal};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// What a case does.
pub(crate) type Run = fn() -> Result<Completion, Failed>;
/// A part of a child, by its name.
pub(crate) type Part = (&'static str, fn() -> Said);
/// What a child says.
pub(crate) type Said = Result<String, Box<dyn Error>>;

/// Names the role of a child.
pub(crate) const PART: &str = "CACHETTE_CHILD_PART";
/// Names the library, as users do.
pub(crate) const LIBRARY: &str = "CACHETTE_HIP_LIBRARY";
const CUDA_LIBRARY: &str = "CACHETTE_CUDA_LIBRARY";

/// In a child, does its part and says what came of it; otherwise runs the cases.
pub(crate) fn main(parts: &[Part], cases: &[(&str, Run)]) -> ExitCode {
    let Ok(part) = env::var(PART) else {
        let trials = cases.iter().map(|(name, case)| Trial::ignorable_test(*name, *case)).collect();
        return libtest_mimic::run(&Arguments::from_args(), trials).exit_code();
    };
    let known = parts.iter().find(|(name, _)| *name == part);
    let said = known.map_or_else(|| Err("there is no such part".into()), |(_, play)| play());
    println!("{}", said.unwrap_or_else(|error| error.to_string()));
    ExitCode::SUCCESS
}

/// Opens every device, and says how many there are and what they lack. `version` stands behind their number.
pub(crate) fn open_all(backend: &dyn Backend, version: &str) -> Said {
    let count = backend.device_count()?;
    let mut lines = vec![format!("{count} devices{version}, emulated: {}", backend.info().emulated)];
    for ordinal in (0..count).map(Ordinal) {
        let device = backend.open(ordinal)?;
        let missing = Feature::ALL.iter().filter_map(|feature| device.missing(*feature));
        lines.extend(missing.map(|missing| missing.to_string()));
        device.allocate(4096)?;
    }
    Ok(lines.join("\n"))
}

/// The device that a leaving process still holds.
static LEFT: OnceLock<AnyDevice> = OnceLock::new();

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
}

/// Opens a device, and uses it once more when the library has shut down.
pub(crate) fn leave(open: impl FnOnce() -> Result<AnyDevice, Box<dyn Error>>) -> Said {
    // Handlers run last first, so the library's own comes before this one.
    // SAFETY: the handler uses nothing that has ended by then.
    unsafe { atexit(use_the_device) };
    LEFT.set(open()?).map_err(|_| "it is set once")?;
    Ok("leaving".to_owned())
}

extern "C" fn use_the_device() {
    if let Some(device) = LEFT.get() {
        let answer = device.allocate(4096).map(|ptr| ptr.to_string());
        println!("{}", answer.unwrap_or_else(|error| error.to_string()));
    }
}

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

/// Looks for a part of what was said.
pub(crate) fn expect_part(said: &str, promised: &str) -> Result<Completion, Failed> {
    if said.contains(promised) { Ok(Completion::Completed) } else { expect(said, promised) }
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
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, "This is no library.\n".repeat(100))?;
    refused(file.path(), "invalid ELF header")
}

/// Devices that vanish after so many calls are lost. Each lets the library come a little further.
pub(crate) fn lost_after(library: &Path, status: u32, calls: [&str; 3]) -> Result<Completion, Failed> {
    let lost = format!("the device is lost (status {status}); stop using the device");
    for calls in calls {
        expect_part(&child("open", library, &[("CACHETTE_EMULATED_LOST_AFTER", calls)])?, &lost)?;
    }
    Ok(Completion::Completed)
}

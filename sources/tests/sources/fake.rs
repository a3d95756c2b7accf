//! A shared library that imitates those of the vendors, and processes that use it.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::{env, fs};

use cachette_hal::load::{Candidate, Library};

/// The variable that is set in a second process.
const SECOND: &str = "CACHETTE_TEST_SECOND_PROCESS";

/// Builds the library once; prints the reason and returns `None` if there is no C compiler.
pub(crate) fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sources/fake.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Another run of the tests may have the last file open.
    let (fresh, library) = (format!("libfake-{}.so", process::id()), folder.join("libfake.so"));
    let fresh = folder.join(fresh);
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&fresh).arg(source);
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{compiler} does not compile fake.c");
            fs::rename(fresh, &library).expect("both lie in one folder");
            Some(library)
        }
        Err(error) => {
            eprintln!("skipped: there is no C compiler ({compiler}: {error})");
            None
        }
    }
}

/// Runs `body` in a second process of the test called `name`, in which every vendor's library is the fake.
///
/// The fake keeps global state, so each test has a process. `settings` are variables for the fake.
pub(crate) fn second_process(name: &str, settings: &[(&str, &str)], body: impl FnOnce(&Fake)) {
    if let Some(path) = env::var_os(SECOND) {
        body(&Fake::open(Path::new(&path)));
        return;
    }
    if let Some(library) = library() {
        let output = start(name, settings, library);
        // A filter that matches no test would succeed too.
        assert!(output.contains(" 1 passed; 0 failed"), "the second process of {name}:\n{output}");
    }
}

/// Runs the second process, and returns its output.
fn start(name: &str, settings: &[(&str, &str)], library: &Path) -> String {
    let mut command = Command::new(env::current_exe().expect("this program has a file"));
    command.args(["--exact", name, "--nocapture"]).env(SECOND, library);
    for vendor in ["NCCL", "RCCL", "NVSHMEM", "ROCSHMEM"] {
        command.env(format!("CACHETTE_{vendor}_LIBRARY"), library);
    }
    let output = command.envs(settings.iter().copied()).output().expect("this program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

/// The counters of the fake.
pub(crate) struct Fake(Library);

impl Fake {
    pub(crate) fn open(path: &Path) -> Self {
        // SAFETY: it has no initialisers.
        let opened = unsafe { Library::open_first(&[Candidate::Path(path.into())]) };
        Self(opened.expect("it was built"))
    }

    /// Calls one of its functions without arguments.
    pub(crate) fn count(&self, function: &str) -> c_int {
        // SAFETY: the tests name functions of this type.
        let found = unsafe { self.0.find::<unsafe extern "C" fn() -> c_int>(function) };
        let function = found.expect("the fake has it");
        // SAFETY: it reads a number.
        unsafe { function() }
    }
}

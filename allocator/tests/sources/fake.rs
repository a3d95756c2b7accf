//! A shared library that imitates those of the vendors, and programs that are told to use it.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::{env, fs};

use cachette::hal::load::{Candidate, Library};

/// The variable by which a test knows that it is the second process.
const SECOND: &str = "CACHETTE_TEST_SECOND_PROCESS";

/// Builds the library once; `None`, with the reason on the screen, where there is no C compiler.
pub(crate) fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sources/fake.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Another run of the tests may have the last one open.
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
/// Its variables name the libraries, and its state is its own. `settings` are the fake's.
pub(crate) fn second_process(name: &str, settings: &[(&str, &str)], body: impl FnOnce(&Fake)) {
    if let Some(path) = env::var_os(SECOND) {
        body(&Fake::open(Path::new(&path)));
        return;
    }
    if let Some(library) = library() {
        let said = start(name, settings, library);
        // A name that no test has would succeed as well.
        assert!(said.contains(" 1 passed; 0 failed"), "the second process of {name} says:\n{said}");
    }
}

/// Starts the second process, and returns all that it said.
fn start(name: &str, settings: &[(&str, &str)], library: &Path) -> String {
    let mut command = Command::new(env::current_exe().expect("this program has a file"));
    command.args(["--exact", name, "--nocapture"]).env(SECOND, library);
    for vendor in ["CUDA", "HIP", "NCCL", "RCCL", "NVSHMEM", "ROCSHMEM"] {
        command.env(format!("CACHETTE_{vendor}_LIBRARY"), library);
    }
    let said = command.envs(settings.iter().copied()).output().expect("this program starts");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    format!("{out}{err}")
}

/// The fake, asked what it has seen.
pub(crate) struct Fake(Library);

impl Fake {
    pub(crate) fn open(path: &Path) -> Self {
        // SAFETY: it has no initialisers.
        let opened = unsafe { Library::open_first(&[Candidate::Path(path.into())]) };
        Self(opened.expect("it was built"))
    }

    /// The answer of one of its functions that take nothing and return a number.
    pub(crate) fn asked(&self, function: &str) -> c_int {
        // SAFETY: those are the functions that the tests name.
        let found = unsafe { self.0.find::<unsafe extern "C" fn() -> c_int>(function) };
        let function = found.expect("the fake has it");
        // SAFETY: it reads a number.
        unsafe { function() }
    }
}

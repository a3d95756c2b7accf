//! Builds programs in C and C++, and finds the library that they are linked with.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::{env, fs};

/// What a program is compiled as.
#[derive(Clone, Copy)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    /// The variable that names its compiler, and the compiler if it is not set.
    const fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::C => ("CC", "cc"),
            Self::Cpp => ("CXX", "c++"),
        }
    }

    const fn flags(self) -> [&'static str; 3] {
        match self {
            Self::C => ["-x", "c", "-std=c99"],
            Self::Cpp => ["-x", "c++", "-std=c++11"],
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::C => "c99",
            Self::Cpp => "cpp",
        }
    }
}

/// Builds `source`; `None`, with the reason on the screen, where there is no compiler.
pub(crate) fn program(source: &Path, language: Language) -> Option<PathBuf> {
    let (variable, usual) = language.compiler();
    let compiler = env::var(variable).unwrap_or_else(|_| usual.into());
    let name = source.file_stem().expect("a source has a name").to_string_lossy();
    let program = folder().join(format!("{name}-{}", language.suffix()));
    let fresh = unfinished(&program);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new(&compiler);
    command
        .args(language.flags())
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-pthread"])
        .args([OsStr::new("-I"), include.as_os_str(), source.as_os_str()])
        .args([OsStr::new("-o"), fresh.as_os_str(), OsStr::new("-L"), folder().as_os_str()])
        .arg("-lcachette")
        .arg(format!("-Wl,-rpath,{}", folder().display()));
    match command.output() {
        Ok(said) => {
            let text = String::from_utf8_lossy(&said.stderr);
            assert!(said.status.success(), "{compiler} refuses {name}:\n{text}");
            fs::rename(fresh, &program).expect("both lie in one folder");
            Some(program)
        }
        Err(error) => {
            eprintln!("skipped: there is no compiler {compiler} ({error})");
            None
        }
    }
}

/// The folder of the programs, with the library under the names by which an installation has it.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        fs::create_dir_all(&folder).expect("the folder can be made");
        let library = built("libcachette_c.so");
        for name in ["libcachette.so.0", "libcachette.so"] {
            let link = folder.join(name);
            let fresh = unfinished(&link);
            symlink(&library, &fresh).expect("no other process has a file of that name");
            fs::rename(fresh, link).expect("both lie in one folder");
        }
        folder
    })
}

/// What a file is called until it is whole: another run of the tests may be using the last one.
fn unfinished(file: &Path) -> PathBuf {
    file.with_extension(format!("{}.new", process::id()))
}

/// A library that Cargo has built.
///
/// Cargo puts it beside the test program, or one folder up, according to what else it was asked to build.
pub(crate) fn built(file: &str) -> PathBuf {
    let program = env::current_exe().expect("a program knows where it is");
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join(file));
    files.find(|file| file.exists()).unwrap_or_else(|| panic!("{file} was not built beside {}", program.display()))
}

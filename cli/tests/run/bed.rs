//! C programs for `cachette run`, over the emulated drivers.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

pub(crate) use crate::program::{NO_LIBRARY, Ran};

/// Whose driver a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Cuda,
    Hip,
}

/// How a program gets the driver's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Linked,
    Opened,
    Asked,
}

/// The versions that the library for HIP can be.
pub(crate) const HIP_VERSIONS: [&str; 3] = ["6.4", "7.2", "7.14"];
pub(crate) const VENDORS: [Vendor; 2] = [Vendor::Cuda, Vendor::Hip];
pub(crate) const WAYS: [Way; 3] = [Way::Linked, Way::Opened, Way::Asked];

impl Vendor {
    const fn variable(self) -> &'static str {
        match self {
            Self::Cuda => "CACHETTE_CUDA_LIBRARY",
            Self::Hip => "CACHETTE_HIP_LIBRARY",
        }
    }

    /// The library that stands for the driver.
    pub(crate) fn library(self) -> PathBuf {
        built(match self {
            Self::Cuda => "libcachette_emulated_cuda.so",
            Self::Hip => "libcachette_emulated_hip.so",
        })
    }

    const fn soname(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Hip => "libamdhip64.so.7",
        }
    }
}

/// `cachette run` with options, on a machine that has one driver.
pub(crate) fn cachette_run(vendor: Vendor, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cachette"));
    command.arg("run").args(options);
    for name in ["CACHETTE_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        command.env_remove(name);
    }
    command.envs([("CACHETTE_CUDA_LIBRARY", NO_LIBRARY), ("CACHETTE_HIP_LIBRARY", NO_LIBRARY)]);
    command.env(vendor.variable(), vendor.library()).env("TEST_LIBRARY", vendor.library());
    // Beside the program may be an older one.
    command.env("CACHETTE_FRONT", built("libcachette_front.so"));
    command.env("XDG_CACHE_HOME", folder().join("cache"));
    command
}

/// Runs a program behind the front to its end.
pub(crate) fn run(vendor: Vendor, options: &[&str], program: &Path, arguments: &[&str]) -> Ran {
    let output = cachette_run(vendor, options).arg("--").arg(program).args(arguments).output();
    Ran::of(&output.expect("the program starts"))
}

/// Runs a part of a program that says what the driver does, without the front or behind it.
pub(crate) fn said(vendor: Vendor, part: &str, variables: &[(&str, &str)], is_plain: bool) -> Ran {
    static BUILT: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let program = BUILT[vendor as usize].get_or_init(|| build(vendor, Way::Linked, "same.c"));
    let mut command = if is_plain { Command::new(program) } else { cachette_run(vendor, &[]) };
    if is_plain {
        command.env("LD_LIBRARY_PATH", folder()).env("TEST_LIBRARY", vendor.library());
    } else {
        command.arg("--").arg(program);
    }
    Ran::of(&bounded(command.arg(part).envs(variables.iter().copied())))
}

/// Runs a program to its end; one that hangs is killed by a signal.
fn bounded(command: &mut Command) -> Output {
    const SECONDS: &str = "60";
    let mut timed = Command::new("timeout");
    timed.args(["-s", "KILL", SECONDS]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => timed.env(name, value),
            None => timed.env_remove(name),
        };
    }
    timed.output().expect("the program starts")
}

/// The program of the tests, built once.
pub(crate) fn program(vendor: Vendor, way: Way) -> PathBuf {
    static BUILT: [[OnceLock<PathBuf>; 3]; 2] = [const { [const { OnceLock::new() }; 3] }; 2];
    BUILT[vendor as usize][way as usize].get_or_init(|| build(vendor, way, "program.c")).clone()
}

fn build(vendor: Vendor, way: Way, file: &str) -> PathBuf {
    let name = format!("{vendor:?}-{way:?}-{}", file.trim_end_matches(".c")).to_lowercase();
    let [vendor_flag, way_flag] = [format!("-D{vendor:?}"), format!("-D{way:?}")].map(|flag| flag.to_uppercase());
    let mut flags = vec![vendor_flag, way_flag];
    if way == Way::Linked {
        let library = folder().join(vendor.soname());
        replace(&library, |fresh| symlink(vendor.library(), fresh).expect("no other process has a file of that name"));
        flags.extend([format!("-L{}", folder().display()), format!("-l:{}", vendor.soname())]);
    }
    compile(&source(file), &name, &flags)
}

/// Compiles a C file.
pub(crate) fn compile(source: &Path, name: &str, flags: &[impl AsRef<OsStr>]) -> PathBuf {
    let program = folder().join(name);
    replace(&program, |fresh| {
        let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
        let mut command = Command::new(&compiler);
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1"]).arg(source).arg("-o").arg(fresh);
        let said = command
            .args(flags)
            .args(["-ldl", "-pthread"])
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(said.status.success(), "{compiler}: {}", String::from_utf8_lossy(&said.stderr));
    });
    program
}

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/c").join(name)
}

/// The folder of what the tests make.
pub(crate) fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run");
    fs::create_dir_all(&folder).expect("the folder can be made");
    folder
}

/// Makes a file whole under another name first: other tests may be using the last one.
fn replace(path: &Path, make: impl FnOnce(&Path)) {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let fresh = path.with_extension(format!("{}.{number}", process::id()));
    make(&fresh);
    fs::rename(fresh, path).expect("both lie in one folder");
}

/// A library that Cargo has built, beside the test program or one folder up.
pub(crate) fn built(file: &str) -> PathBuf {
    let program = env::current_exe().expect("a program knows where it is");
    let mut files = program.ancestors().skip(1).take(2).map(|folder| folder.join(file));
    files.find(|file| file.exists()).unwrap_or_else(|| panic!("{file} was not built beside {}", program.display()))
}

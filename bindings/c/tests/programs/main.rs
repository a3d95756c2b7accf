//! Programs in C, compiled as C99 and once more as C++, linked with the library, and run.
//!
//! Each ends with an error at the first promise that is not kept. Where there is no compiler, the tests say that they
//! were skipped.

mod build;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use build::Language;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Runs a program that was built, and returns what it printed.
fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    // What the user's shell sets must not change what the programs find.
    for name in ["CACHETTE_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        command.env_remove(name);
    }
    // No driver that a machine may have: the programs are written for host memory.
    command.envs([("CACHETTE_CUDA_LIBRARY", "/none"), ("CACHETTE_HIP_LIBRARY", "/none")]);
    command.env("CACHETTE_HOST_CAPACITY", "1GiB");
    command.args(arguments).envs(variables.iter().copied());
    let said = command.output().expect("a program that was built starts");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{}: {}\n{out}{err}", program.display(), said.status);
    out.into_owned()
}

/// Builds and runs one of the programs for tests.
fn test(name: &str, language: Language) {
    let source = folder("tests/c").join(format!("{name}.c"));
    if let Some(program) = build::program(&source, language) {
        run(&program, &[], &[]);
    }
}

macro_rules! programs {
    ($($name:ident)*) => {
        const PROGRAMS: &[&str] = &[$(stringify!($name)),*];

        mod in_c {
            $(#[test] fn $name() { super::test(stringify!($name), super::Language::C); })*
        }

        mod in_cpp {
            $(#[test] fn $name() { super::test(stringify!($name), super::Language::Cpp); })*
        }
    };
}

programs! {
    addresses
    allocators
    captures
    checkpoints
    dlpack
    errors
    evictable
    forks
    growable
    histories
    memory
    mutations
    observers
    pinned
    pools
    routes
    settings
    shared
    sleep
    sources
    statistics
    streams
    threads
    versions
}

#[test]
fn every_program_is_run() {
    let files = fs::read_dir(folder("tests/c")).expect("the folder is there");
    let mut names: Vec<String> = files
        .map(|file| file.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .map(|path| path.file_stem().expect("it has a name").to_string_lossy().into_owned())
        .collect();
    names.retain(|name| name != "emulated");
    names.sort();
    assert_eq!(names, PROGRAMS);
}

#[test]
fn the_example_runs_on_host_memory() {
    let source = folder("examples/quickstart.c");
    if let Some(program) = build::program(&source, Language::C) {
        let said = run(&program, &["host"], &[]);
        assert!(said.contains("the last number is 255"), "{said}");
        assert!(said.contains("requests: 1000, of them asked of the driver: 1"), "{said}");
    }
}

/// The library that imitates NVIDIA's driver stands for a card; so a pool can be told to use NCCL, which is not there.
#[test]
fn a_vendor_s_device_is_used_from_c() {
    let emulated = build::built("libcachette_emulated_cuda.so");
    let emulated = emulated.to_str().expect("the path is UTF-8");
    let variables = [("CACHETTE_CUDA_LIBRARY", emulated), ("CACHETTE_NCCL_LIBRARY", "/none")];
    let source = folder("tests/c/emulated.c");
    if let Some(program) = build::program(&source, Language::C) {
        run(&program, &[], &variables);
    }
}

//! What `cachette run` cannot do ends before the program starts, or is said at its end.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bed::{self, NO_LIBRARY, Ran, Vendor, Way};

fn of(command: &mut Command) -> Ran {
    Ran::of(&command.output().expect("the program starts"))
}

/// Runs `true` with options, which must be refused.
#[track_caller]
fn refused(options: &[&str], expected: &str) {
    let ran = of(bed::cachette_run(Vendor::Cuda, options).args(["--", "true"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains(expected), "{ran:?}");
    assert!(!ran.stderr.contains("in front of /"), "nothing was started: {ran:?}");
}

#[test]
fn no_program() {
    let ran = of(&mut bed::cachette_run(Vendor::Cuda, &[]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("<PROGRAM>"), "{ran:?}");
}

#[test]
fn a_program_that_is_not_there_or_not_one() {
    let ran = bed::run(Vendor::Cuda, &[], Path::new("no-such-program"), &[]);
    assert_eq!(ran.code, Some(127), "{ran:?}");
    assert!(ran.stderr.contains("error: cannot start 'no-such-program': "), "{ran:?}");
    let ran = bed::run(Vendor::Cuda, &[], &bed::source("program.c"), &[]);
    assert_eq!(ran.code, Some(126), "{ran:?}");
    assert!(ran.stderr.contains("Permission denied"), "{ran:?}");
}

#[test]
fn the_exit_code_is_the_program_s() {
    let ran = bed::run(Vendor::Cuda, &[], &bed::program(Vendor::Cuda, Way::Linked), &["code"]);
    assert_eq!(ran.code, Some(42), "{ran:?}");
    let ran = bed::run(Vendor::Cuda, &[], Path::new("sh"), &["-c", "kill -9 $$"]);
    assert_eq!(ran.code, None, "a signal: {ran:?}");
}

#[test]
fn a_program_that_uses_no_driver_or_allocates_nothing() {
    let ran = bed::run(Vendor::Cuda, &[], Path::new("true"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("asked the driver for no memory: it loaded neither libcuda nor"), "{ran:?}");
    let ran = bed::run(Vendor::Cuda, &[], &bed::program(Vendor::Cuda, Way::Linked), &["code"]);
    let library = Vendor::Cuda.library();
    let expected = format!("asked the driver for no memory: it loaded {}", library.canonicalize().unwrap().display());
    assert!(ran.stderr.contains(&expected), "{ran:?}");
}

#[test]
fn a_statically_linked_program() {
    let source = bed::folder().join("static.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = bed::compile(&source, "static", &["-static"]);
    let ran = bed::run(Vendor::Cuda, &[], &program, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("is statically linked, so no library can be put in front"), "{ran:?}");
}

#[test]
fn a_front_that_is_not_there_or_not_one() {
    refused(&["--front", "/none"], "'/none' is not the front: No such file or directory");
    refused(&["--front", "/"], "'/libcachette_front.so' is not the front: No such file or directory");
    let library = Vendor::Cuda.library();
    refused(
        &["--front", library.to_str().unwrap()],
        "is not the front: it is another library or none; name libcachette",
    );
    let source = bed::source("program.c");
    refused(&["--front", source.to_str().unwrap()], "it is another library or none");
    let ran = of(bed::cachette_run(Vendor::Cuda, &["--", "true"]).env("CACHETTE_FRONT", "/none"));
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn no_driver() {
    let ran = |options: &[&str]| {
        let mut command = bed::cachette_run(Vendor::Cuda, options);
        of(command.args(["--", "true"]).env("CACHETTE_CUDA_LIBRARY", "").env("PATH", "/none"))
    };
    // A machine with a driver of NVIDIA finds it.
    if ran(&[]).code != Some(1) {
        return;
    }
    assert_eq!(
        ran(&[]).stderr,
        format!(
            "error: no CUDA or HIP driver found (libcuda.so.1, {NO_LIBRARY}); install one, or name its library by \
             CACHETTE_CUDA_LIBRARY or CACHETTE_HIP_LIBRARY; --verbose says why\n"
        )
    );
    let details = ran(&["--verbose"]);
    assert_eq!(details.code, Some(1), "{details:?}");
    assert!(details.stderr.contains("no driver library could be opened; tried"), "{details:?}");
}

#[test]
fn a_driver_that_is_the_front_itself() {
    let front = bed::built("libcachette_front.so");
    let mut command = bed::cachette_run(Vendor::Cuda, &["--verbose", "--"]);
    command.arg(bed::program(Vendor::Cuda, Way::Opened)).arg("pairs").env("CACHETTE_CUDA_LIBRARY", front);
    let ran = of(&mut command);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("libcachette_front.so is the front and no driver"), "{ran:?}");
}

#[test]
fn a_front_inside_a_front() {
    let program = env!("CARGO_BIN_EXE_cachette");
    let ran = bed::run(Vendor::Cuda, &[], Path::new(program), &["run", "--", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("runs behind `cachette run` already; leave one of the two out"), "{ran:?}");
}

#[test]
fn a_wrong_configuration_or_limit() {
    refused(&["--config", "no_such_key:1"], "there is no key 'no_such_key'");
    refused(&["--limit", "much"], "a size is a number above 0 with a unit or without");
    refused(&["--limit", "10"], "did you mean 10GB?");
    refused(&["--config", "memory_limit:10"], "did you mean 10GB?");
    let both = ["--config", "memory_limit:1G", "--limit", "1G"];
    refused(&both, "limits memory, and so does --limit; leave one of them out");
}

#[test]
fn a_wrong_configuration_in_the_environment_leaves_the_program_to_the_driver() {
    let mut command = bed::cachette_run(Vendor::Cuda, &["--"]);
    command.arg(bed::program(Vendor::Cuda, Way::Linked)).arg("streams").env("CACHETTE_ALLOC_CONF", "no_such_key:1");
    let ran = of(&mut command);
    let told = "the driver serves this program instead of Cachette: CACHETTE_ALLOC_CONF: ";
    assert_eq!(ran.stderr.matches(told).count(), 1, "{ran:?}");
}

#[test]
fn a_snapshot_that_cannot_be_written() {
    refused(&["--snapshot", "memory.txt"], "use a name that ends in .json or .pickle");
    refused(&["--snapshot", "/none/memory.json"], "cannot write to '/none/memory.json'");
}

//! Runs the program under test.

use std::process::{Command, Output};

/// A driver library that is not there.
pub(crate) const NO_LIBRARY: &str = "/no/such/library.so";

/// The program with `arguments`, ready to run on a machine without a GPU, whatever this one has.
pub(crate) fn cachette(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cachette"));
    command.args(arguments);
    for variable in ["CACHETTE_CUDA_LIBRARY", "CACHETTE_HIP_LIBRARY"] {
        command.env(variable, NO_LIBRARY);
    }
    command.env("CACHETTE_HOST_CAPACITY", "3GiB");
    command
}

/// What a finished run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    let output = cachette(arguments).output();
    Ran::of(&output.expect("the program starts"))
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is text");
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

//! This program, run again under callgrind.

use std::env;
use std::io;
use std::process::Command;

use super::Case;

/// Errors of counting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallgrindError {
    /// There is no valgrind.
    #[error("valgrind was not found; install it (its package is called valgrind) and try again")]
    Missing,
    /// It could not be started.
    #[error("valgrind could not be started: {0}")]
    Start(io::Error),
    /// It ended without a count.
    #[error("'{case}' was not counted; valgrind said:\n{output}")]
    NoCount {
        /// The name of the case.
        case: &'static str,
        /// What was written to the standard error.
        output: String,
    },
}

/// Instructions of this program when it runs only `case`, from start to end.
///
/// It is started with the arguments `--run NAME`, and `--twice` for twice the pairs.
pub fn count(case: Case, twice: bool) -> Result<u64, CallgrindError> {
    let twice = twice.then_some("--twice");
    count_run(case.name(), None, &["--run", case.name()].into_iter().chain(twice).collect::<Vec<_>>())
}

/// Instructions of this program with `arguments`; with `within` only those of calls of the function.
pub(crate) fn count_run(name: &'static str, within: Option<&str>, arguments: &[&str]) -> Result<u64, CallgrindError> {
    let program = env::current_exe().map_err(CallgrindError::Start)?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.args(within.map(|function| format!("--toggle-collect=*{function}*")));
    command.arg(program).args(arguments);
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CallgrindError::Missing,
        _ => CallgrindError::Start(error),
    })?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = output.status.success().then(|| collected(&text)).flatten();
    count.ok_or_else(|| CallgrindError::NoCount { case: name, output: text.into_owned() })
}

/// The count in what callgrind writes at its end, as in `==17== Collected : 12345`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_the_summary() {
        let text = "==17== \n==17== Events    : Ir\n==17== Collected : 12345\n==17== \n";
        assert_eq!(collected(text), Some(12_345));
        assert_eq!(collected("==17== Events    : Ir\n"), None);
    }
}

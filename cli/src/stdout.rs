//! The standard output, whose reader may close it early.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// Runs `write` with the standard output.
///
/// A closed pipe, for example of `head`, is no error; the exit code is that of the command.
pub(crate) fn print(write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

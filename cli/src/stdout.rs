//! The standard output, whose reader may leave early.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// Lets `write` write to the standard output.
///
/// A reader that leaves early, such as `head`, has got what it wanted: that is no error, and what the command
/// found still decides its exit code.
pub(crate) fn print(write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

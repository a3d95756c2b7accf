//! The standard output, whose reader may close it early.

use std::io::{self, ErrorKind, StdoutLock, Write};

use cachette_replay::table::Table;
use console::Term;

/// The columns that text for people fits in.
pub(crate) const WIDTH: usize = 80;

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

/// A table for the standard output: folded to the width of a terminal, whole for a pipe or a file.
pub(crate) fn table<const N: usize>(table: &Table<N>) -> String {
    match Term::stdout().size_checked() {
        Some((_, columns)) => table.folded(columns.into()),
        None => table.to_string(),
    }
}

/// A sentence for the standard output: broken on a terminal, one line for a pipe or a file.
pub(crate) fn sentence(text: &str) -> String {
    if Term::stdout().is_term() { wrap(text) } else { format!("{text}\n") }
}

/// Breaks lines that are longer than [`WIDTH`]; what continues a line is indented further than it.
pub(crate) fn wrap(text: &str) -> String {
    wrap_to(text, 4)
}

/// Breaks lines as [`wrap`] does; what continues a line is indented by `more`.
pub(crate) fn wrap_to(text: &str, more: usize) -> String {
    let wrapped = text.lines().flat_map(|line| {
        let indent = " ".repeat(line.len() - line.trim_start().len() + more);
        // A path is never broken.
        let options = textwrap::Options::new(WIDTH).subsequent_indent(&indent).break_words(false);
        let lines = textwrap::wrap(line, options);
        lines.into_iter().map(|line| format!("{line}\n")).collect::<Vec<_>>()
    });
    wrapped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_continue_below_with_more_indent() {
        let text = format!("short\n  long {}\n", "word ".repeat(30).trim_end());
        let wrapped = wrap(&text);
        assert!(wrapped.starts_with("short\n  long word "), "{wrapped}");
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH), "{wrapped}");
        assert!(wrapped.lines().skip(2).all(|line| line.starts_with("      word")), "{wrapped}");
    }
}

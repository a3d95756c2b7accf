//! From the text of a trace to its operations.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::build::Builder;
use super::{Trace, TraceError, TraceProblem, name_of};

/// The first bytes of a gzip file.
const PACKED: [u8; 2] = [0x1F, 0x8B];
/// Bytes of a line, with its end: the longest that is right has 66.
const LONGEST: usize = 128;
/// How much of a wrong line is shown.
const SHOWN: usize = 40;

pub(super) fn open(path: &Path) -> Result<Trace, TraceError> {
    let fail = |line, problem| TraceError { path: path.to_owned(), line, problem };
    let unreadable = |error| fail(None, TraceProblem::Unreadable(error));
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let packed = file.fill_buf().map_err(unreadable)?.starts_with(&PACKED);
    let mut reader = Reader::default();
    let read = if packed { reader.read(BufReader::new(MultiGzDecoder::new(file))) } else { reader.read(file) };
    read.map_err(|problem| fail(Some(reader.line), problem))?;
    if reader.builder.operations.is_empty() {
        return Err(fail(None, TraceProblem::Empty));
    }
    Ok(reader.builder.finish(name_of(path, &[".trace"])))
}

/// What has been read so far.
#[derive(Debug, Default)]
struct Reader {
    /// The line that is being read, counted from 1.
    line: u64,
    builder: Builder,
}

impl Reader {
    fn read(&mut self, mut text: impl BufRead) -> Result<(), TraceProblem> {
        let mut line = Vec::new();
        loop {
            self.line += 1;
            line.clear();
            let mut most = text.by_ref().take(LONGEST as u64);
            let bytes = most.read_until(b'\n', &mut line).map_err(unreadable)?;
            if bytes == 0 {
                return Ok(());
            }
            if line.pop() != Some(b'\n') {
                return Err(if bytes == LONGEST {
                    TraceProblem::LineTooLong(LONGEST)
                } else {
                    TraceProblem::LineCutShort
                });
            }
            self.read_line(&String::from_utf8_lossy(&line))?;
        }
    }

    fn read_line(&mut self, line: &str) -> Result<(), TraceProblem> {
        let mut fields = line.split_ascii_whitespace();
        let found: [Option<&str>; 5] = std::array::from_fn(|_| fields.next());
        match found {
            [Some("a"), Some(id), Some(bytes), Some(stream), None] => {
                let (id, bytes) = (number("ID", id)?, number("SIZE", bytes)?);
                self.builder.allocate(id, bytes, number("STREAM", stream)?)
            }
            [Some("f"), Some(id), None, ..] => self.builder.free(number("ID", id)?),
            [Some(word), ..] if word.starts_with('#') => Ok(()),
            _ => Err(TraceProblem::Form(shown(line))),
        }
    }
}

fn unreadable(error: io::Error) -> TraceProblem {
    match error.kind() {
        ErrorKind::UnexpectedEof => TraceProblem::PackedCutShort,
        _ => TraceProblem::Unreadable(error),
    }
}

fn number(field: &'static str, text: &str) -> Result<u64, TraceProblem> {
    // `parse` would take a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| TraceProblem::Number { field, text: shown(text) })
}

/// The beginning of a text, without control characters.
fn shown(text: &str) -> String {
    let mut characters = text.escape_debug();
    let start: String = characters.by_ref().take(SHOWN).collect();
    let more = if characters.next().is_some() { "…" } else { "" };
    format!("{start}{more}")
}

#[cfg(test)]
mod tests;

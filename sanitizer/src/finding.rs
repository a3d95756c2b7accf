//! Findings: what was wrong, where, and what is missing.

use std::fmt;
use std::fs;

use cachette::history::Frame;
use cachette::human::Bytes;
use serde::Serialize;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// Memory was given to another request while a stream could still use it.
    ReusedTooEarly,
    /// Memory was unmapped or freed to the driver while a stream could still use it.
    UnmappedTooEarly,
    /// Memory was used after its free.
    UsedAfterFree,
    /// Memory was read, and no write since its allocation is ordered before.
    ReadBeforeWritten,
    /// The host accessed pinned memory while a stream could still use it.
    HostAccessTooEarly,
    /// Memory was used while its pool was asleep.
    UsedAsleep,
}

impl FindingKind {
    /// The first line of a finding.
    #[must_use]
    pub const fn headline(self) -> &'static str {
        match self {
            Self::ReusedTooEarly => "memory was reused while another stream could still use it",
            Self::UnmappedTooEarly => "memory was unmapped while a stream could still use it",
            Self::UsedAfterFree => "memory was used after its free",
            Self::ReadBeforeWritten => "memory was read before it was written",
            Self::HostAccessTooEarly => "the host accessed pinned memory while a stream could still use it",
            Self::UsedAsleep => "memory was used while its pool was asleep",
        }
    }
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SourceLine {
    /// The function.
    pub function: String,
    /// The file; empty if unknown.
    pub file: String,
    /// The line; zero if unknown.
    pub line: u32,
    /// The text of the line, if the file could be read.
    pub source: String,
}

impl SourceLine {
    pub(crate) fn of(frame: &Frame) -> Self {
        let Frame { name, file, line } = frame;
        let text = fs::read_to_string(file).unwrap_or_default();
        let source = line.checked_sub(1).and_then(|line| text.lines().nth(line as usize)).unwrap_or_default();
        Self { function: name.clone(), file: file.clone(), line: *line, source: source.trim().to_owned() }
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return f.write_str(&self.function);
        }
        write!(f, "{}:{} in {}", self.file, self.line, self.function)?;
        if self.source.is_empty() { Ok(()) } else { write!(f, ": {}", self.source) }
    }
}

/// One event in the life of the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// What happened, such as `read on stream B (0x5) by aten::mul`.
    pub what: String,
    /// The line of the program, then its callers; empty if unknown, or if libraries alone ran it.
    pub lines: Vec<SourceLine>,
}

/// A finding. Findings of the same kind and places are one, with a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// How many times it was found.
    pub count: u64,
    /// The first address of the memory, when it was first found.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Such as the shape of a tensor; empty if unknown.
    pub description: String,
    /// What happened to the memory, in order.
    pub steps: Vec<Step>,
    /// What is missing in the program.
    pub missing: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cachette sanitizer: {}", self.kind.headline())?;
        match self.count {
            1 => writeln!(f)?,
            count => writeln!(f, " ({count} times)")?,
        }
        write!(f, "  memory: {}", Bytes(self.bytes))?;
        if !self.description.is_empty() {
            write!(f, ", {}", self.description)?;
        }
        writeln!(f, ", at {:#x}", self.address)?;
        for (number, Step { what, lines }) in (1..).zip(&self.steps) {
            writeln!(f, "  {number}. {what}")?;
            for line in lines {
                writeln!(f, "       {line}")?;
            }
        }
        write!(f, "  missing: {}", self.missing)
    }
}

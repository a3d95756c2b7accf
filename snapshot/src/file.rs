//! Snapshots in files, of whichever format.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::budget::Budget;
use crate::{Snapshot, SnapshotError, SnapshotProblem};

/// How a file that gzip has packed begins.
const PACKED: [u8; 2] = [0x1F, 0x8B];
/// How an archive begins.
const ARCHIVE: [u8; 4] = *b"PK\x03\x04";
/// How a pickle of protocol 2 or above begins.
const PICKLE: u8 = 0x80;
/// How many bytes of a foreign file are shown.
const SHOWN: usize = 8;

/// What a file holds, by how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Empty,
    Json,
    Pickle,
    Archive,
    Foreign,
}

impl Format {
    fn of(start: &[u8]) -> Self {
        let text = start.trim_ascii_start();
        match (start.first(), text.first()) {
            (None, _) => Self::Empty,
            (Some(&PICKLE), _) => Self::Pickle,
            (_, Some(b'{')) => Self::Json,
            _ if start.starts_with(&ARCHIVE) => Self::Archive,
            _ => Self::Foreign,
        }
    }
}

impl Snapshot {
    /// Reads a snapshot of either format, packed by gzip or not; its first bytes say which it is.
    pub fn read(path: &Path) -> Result<Self, SnapshotError> {
        let read = || {
            let mut file = open(path)?;
            let start = file.fill_buf().map_err(unreadable)?;
            match Format::of(start) {
                Format::Json => Self::read_json(file),
                Format::Pickle => Self::read_pickle(file),
                Format::Empty => Err(SnapshotProblem::Empty.into()),
                Format::Archive => Err(SnapshotProblem::Archive.into()),
                Format::Foreign => {
                    let start = start[..start.len().min(SHOWN)].to_owned();
                    Err(SnapshotProblem::Foreign { start }.into())
                }
            }
        };
        read().map_err(|error| error.of(path))
    }

    /// Whether a file looks like a snapshot, by how it begins; `false` if it cannot be read, or only once, as a pipe.
    #[must_use]
    pub fn is_likely(path: &Path) -> bool {
        if !path.is_file() {
            return false;
        }
        let start = |mut file: Box<dyn BufRead>| Some(Format::of(file.fill_buf().ok()?));
        let format = open(path).ok().and_then(start);
        matches!(format, Some(Format::Json | Format::Pickle))
    }
}

/// What is in a file, unpacked.
fn open(path: &Path) -> Result<Box<dyn BufRead>, SnapshotError> {
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let packed = file.fill_buf().map_err(unreadable)?.starts_with(&PACKED);
    Ok(if packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) })
}

pub(crate) fn unreadable(error: io::Error) -> SnapshotProblem {
    if let Some(bound) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        let Bound(limit) = *bound;
        return SnapshotProblem::TooLarge { limit };
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotProblem::PackedCutShort,
        _ => SnapshotProblem::Unreadable(error),
    }
}

/// Passes on what is read, counts it, and ends at the limit; a packed file can be a thousand times larger than it looks.
#[derive(Debug)]
pub(crate) struct Bounded<'a, R> {
    inner: R,
    budget: &'a Budget,
}

/// That a file is larger than this.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it is larger than {0} bytes")]
struct Bound(u64);

impl<'a, R: Read> Bounded<'a, R> {
    pub(crate) const fn new(inner: R, budget: &'a Budget) -> Self {
        Self { inner, budget }
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if self.budget.read(count) {
            return Ok(count);
        }
        Err(io::Error::other(Bound(self.budget.limits().bytes)))
    }
}

//! Snapshots in files, of either format.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::budget::Budget;
use crate::{Snapshot, SnapshotError, SnapshotProblem};

/// The first bytes of a gzip file.
const PACKED: [u8; 2] = [0x1F, 0x8B];
/// The first bytes of a zip archive.
const ARCHIVE: [u8; 4] = *b"PK\x03\x04";
/// The first byte of a pickle of protocol 2 or above.
const PICKLE: u8 = 0x80;
/// How far a packed file may expand, beyond [`ANY_FOLD`]. The history of a loop of allocations expands
/// 13 times as a pickle and 28 times as JSON.
const FOLD: u64 = 256;
/// Bytes that any packed file may expand to.
const ANY_FOLD: u64 = 16 << 20;
/// The number of bytes of an unknown file that are shown.
const SHOWN: usize = 8;

/// The format of a file, by its first bytes.
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
    /// Reads a snapshot of either format, compressed by gzip or not. The first bytes determine the format.
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

    /// Returns whether the first bytes look like a snapshot; `false` if it cannot be read, or only once, as a pipe.
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

/// Opens a file and decompresses it.
fn open(path: &Path) -> Result<Box<dyn BufRead>, SnapshotError> {
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let packed = file.fill_buf().map_err(unreadable)?.starts_with(&PACKED);
    Ok(if packed { Box::new(BufReader::new(Unpacked::new(file))) } else { Box::new(file) })
}

/// A packed file, which is read until it expands like no snapshot does.
struct Unpacked<R> {
    decoder: MultiGzDecoder<Counted<R>>,
    unpacked: u64,
}

/// A reader that counts the bytes that were taken from it.
struct Counted<R> {
    inner: R,
    taken: u64,
}

impl<R: BufRead> Unpacked<R> {
    fn new(inner: R) -> Self {
        Self { decoder: MultiGzDecoder::new(Counted { inner, taken: 0 }), unpacked: 0 }
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.unpacked += count as u64;
        let most = self.decoder.get_ref().taken.saturating_mul(FOLD).saturating_add(ANY_FOLD);
        if self.unpacked > most { Err(io::Error::other(Bound::Fold)) } else { Ok(count) }
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.taken += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.taken += count as u64;
        self.inner.consume(count);
    }
}

pub(crate) fn unreadable(error: io::Error) -> SnapshotProblem {
    if let Some(bound) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return match *bound {
            Bound::Bytes(limit) => SnapshotProblem::TooLarge { limit },
            Bound::Fold => SnapshotProblem::Expands { fold: FOLD },
        };
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotProblem::PackedCutShort,
        _ => SnapshotProblem::Unreadable(error),
    }
}

/// A reader that counts the bytes and stops at the limit. A compressed file can expand a thousandfold.
#[derive(Debug)]
pub(crate) struct Bounded<'a, R> {
    inner: R,
    budget: &'a Budget,
}

/// The error that a file exceeds a limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Bound {
    #[error("it is larger than {0} bytes")]
    Bytes(u64),
    #[error("it expands too far")]
    Fold,
}

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
        Err(io::Error::other(Bound::Bytes(self.budget.limits().bytes)))
    }
}

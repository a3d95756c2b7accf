//! The memory of a device that several processes share: a file counts what each of them uses.
//!
//! The file is a table with a row for each process and device. The bytes of a process that has ended are free again, as
//! with a real driver.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use cachette_hal::Guarded;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};

/// The most processes that may have memory at once.
const ROWS: usize = 256;
/// A row: the process, the device, and the bytes in use.
const ROW: usize = 16;

/// The memory of one device, which processes share by a file.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// Locked by threads of this process; the file itself is locked for other processes.
    file: Guarded<File>,
    /// The process that opened it. A forked child has a copy, and changes nothing.
    process: u32,
    ordinal: u32,
}

impl SharedMemory {
    pub(crate) fn open(path: &Path, ordinal: u32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file: Guarded::new(file), process: std::process::id(), ordinal })
    }

    /// A number that is the same for all processes with the same file.
    pub(crate) fn identity(&self) -> io::Result<u64> {
        let facts = self.file.lock().metadata()?;
        Ok(facts.dev().rotate_left(32) ^ facts.ino())
    }

    /// Bytes in use by all processes.
    pub(crate) fn used(&self) -> u64 {
        self.with_rows(|rows| rows.iter().filter(|row| row.ordinal == self.ordinal).map(|row| row.used).sum())
            .unwrap_or(u64::MAX)
    }

    /// Uses `bytes` unless all processes together would use more than `capacity`. Returns whether they are used.
    pub(crate) fn take(&self, bytes: u64, capacity: u64) -> bool {
        let taken = self.with_rows(|rows| {
            let of_device = rows.iter().filter(|row| row.ordinal == self.ordinal);
            let used: u64 = of_device.map(|row| row.used).sum();
            let row = self.own_row(rows).filter(|_| used.saturating_add(bytes) <= capacity);
            row.map(|row| row.used += bytes).is_some()
        });
        taken.unwrap_or(false)
    }

    pub(crate) fn free(&self, bytes: u64) {
        if self.process == std::process::id() {
            // Without the file, the bytes are free when the process ends.
            let _ = self.with_rows(|rows| self.own_row(rows).map(|row| row.used = row.used.saturating_sub(bytes)));
        }
    }

    /// The row of this process, an unused one if it has none yet.
    fn own_row<'a>(&self, rows: &'a mut [Row]) -> Option<&'a mut Row> {
        let own = |row: &Row| row.process == self.process && row.ordinal == self.ordinal;
        let at = rows.iter().position(own).or_else(|| rows.iter().position(|row| row.process == 0))?;
        (rows[at].process, rows[at].ordinal) = (self.process, self.ordinal);
        Some(&mut rows[at])
    }

    /// Reads the rows, changes them and writes them back, while no other process does. Rows of ended processes are empty.
    fn with_rows<T>(&self, change: impl FnOnce(&mut [Row]) -> T) -> io::Result<T> {
        let file = self.file.lock();
        flock(&*file, FlockOperation::LockExclusive)?;
        let mut bytes = vec![0; ROWS * ROW];
        // The file is empty at first, and is written as a whole.
        file.read_at(&mut bytes, 0)?;
        let mut rows: Vec<Row> = bytes.chunks_exact(ROW).map(Row::decode).collect();
        let changed = change(&mut rows);
        let bytes: Vec<u8> = rows.iter().flat_map(Row::encode).collect();
        file.write_all_at(&bytes, 0)?;
        flock(&*file, FlockOperation::Unlock)?;
        Ok(changed)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    process: u32,
    ordinal: u32,
    used: u64,
}

impl Row {
    /// Reads a row; an empty one if its process has ended.
    fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| bytes[at..at + 4].iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        let row =
            Self { process: number(0), ordinal: number(4), used: u64::from(number(8)) | u64::from(number(12)) << 32 };
        let pid = Pid::from_raw(row.process.cast_signed());
        let lives = pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
        if lives { row } else { Self::default() }
    }

    fn encode(&self) -> [u8; ROW] {
        let mut bytes = [0; ROW];
        bytes[..4].copy_from_slice(&self.process.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.ordinal.to_le_bytes());
        bytes[8..].copy_from_slice(&self.used.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_the_memory_and_an_ended_one_uses_none() {
        let path = std::env::temp_dir().join(format!("cachette-shared-{}", std::process::id()));
        let memory = SharedMemory::open(&path, 0).unwrap();
        // A row of another process, which has ended, and one of the process that started this one.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        let parent = std::os::unix::process::parent_id();
        for (process, used) in [(ended, 50), (parent, 30)] {
            let other = SharedMemory {
                file: Guarded::new(File::options().read(true).write(true).open(&path).unwrap()),
                process,
                ordinal: 0,
            };
            assert!(other.take(used, 100));
        }
        let other_device = SharedMemory::open(&path, 1).unwrap();
        assert!(other_device.take(100, 100));
        assert_eq!(memory.used(), 30);
        assert!(!memory.take(71, 100) && memory.take(70, 100));
        assert_eq!(memory.used(), 100);
        memory.free(60);
        assert_eq!(memory.used(), 40);
        std::fs::remove_file(path).unwrap();
    }
}

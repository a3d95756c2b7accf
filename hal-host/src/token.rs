//! The bytes of tokens and fabric handles, which name memory in another process.

use std::ffi::CStr;

use rustix::fs::{Mode, OFlags};

use crate::backing::BACKING;
use crate::extent::DIRECT;
use crate::mapping::Memory;

const VERSION: u32 = 1;

/// What a token refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// An allocation, by an inter-process token.
    Allocation,
    /// A backing, by a fabric handle.
    Backing,
}

impl Named {
    /// The first bytes.
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Allocation => *b"cachette",
            Self::Backing => *b"cachfabr",
        }
    }

    /// The name of its memory in the lists of open files.
    const fn file(self) -> &'static CStr {
        match self {
            Self::Allocation => DIRECT,
            Self::Backing => BACKING,
        }
    }
}

/// Identifies one piece of memory among all processes of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenKey {
    pub(crate) process: Process,
    /// Number of the memory's descriptor in that process.
    pub(crate) descriptor: i32,
    /// Distinguishes the memory from later memory under the same descriptor.
    pub(crate) inode: u64,
    /// Bytes that the owner requested.
    pub(crate) bytes: u64,
    /// Bytes of the memory, whole pages.
    pub(crate) memory_bytes: u64,
}

/// A process: its id and its start time, because ids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// In clock ticks since the boot of the host.
    pub(crate) began: u64,
}

impl Process {
    pub(crate) fn own() -> Option<Self> {
        Self::find(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Returns the process that currently has this id.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name, in brackets, and may contain any text.
        let (_, fields) = status.rsplit_once(')')?;
        let began = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, began })
    }
}

impl TokenKey {
    /// The key of memory of this process; `None` if the memory is phantom.
    pub(crate) fn of(memory: Option<&Memory>, bytes: u64, memory_bytes: u64) -> Option<Self> {
        let (memory, process) = (memory?, Process::own()?);
        Some(Self { process, descriptor: memory.descriptor(), inode: memory.inode, bytes, memory_bytes })
    }

    pub(crate) fn encode(&self, named: Named) -> [u8; 64] {
        let fields: [&[u8]; 8] = [
            &named.magic(),
            &VERSION.to_le_bytes(),
            &self.process.pid.to_le_bytes(),
            &self.process.began.to_le_bytes(),
            &i64::from(self.descriptor).to_le_bytes(),
            &self.inode.to_le_bytes(),
            &self.bytes.to_le_bytes(),
            &self.memory_bytes.to_le_bytes(),
        ];
        let mut token = [0; 64];
        let bytes = fields.into_iter().flatten();
        token.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        token
    }

    /// Reads a name; `None` if this crate did not write it.
    pub(crate) fn decode(token: &[u8; 64], named: Named) -> Option<Self> {
        let mut rest = token.as_slice();
        let magic = take::<8>(&mut rest)?;
        if magic != named.magic() || take(&mut rest).map(u32::from_le_bytes)? != VERSION {
            return None;
        }
        let process =
            Process { pid: i32::from_le_bytes(take(&mut rest)?), began: u64::from_le_bytes(take(&mut rest)?) };
        let key = Self {
            process,
            descriptor: i32::try_from(i64::from_le_bytes(take(&mut rest)?)).ok()?,
            inode: u64::from_le_bytes(take(&mut rest)?),
            bytes: u64::from_le_bytes(take(&mut rest)?),
            memory_bytes: u64::from_le_bytes(take(&mut rest)?),
        };
        let sane = process.pid > 0
            && key.descriptor >= 0
            && (1..=key.memory_bytes).contains(&key.bytes)
            && rest.iter().all(|byte| *byte == 0);
        sane.then_some(key)
    }

    /// Returns the memory of the key, if its process still has it.
    pub(crate) fn reach(&self, named: Named) -> Option<Memory> {
        let path = format!("/proc/{}/fd/{}", self.process.pid, self.descriptor);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        // The descriptor is open, so its number cannot be reused for another file any more.
        let memory = Memory::adopt(descriptor, named.file(), self.memory_bytes)?;
        let same = memory.inode == self.inode && Process::find(self.process.pid) == Some(self.process);
        same.then_some(memory)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TokenKey {
        TokenKey { process: Process::own().unwrap(), descriptor: 7, inode: 99, bytes: 1000, memory_bytes: 4096 }
    }

    #[test]
    fn a_token_means_what_it_was_made_from() {
        for named in [Named::Allocation, Named::Backing] {
            assert_eq!(TokenKey::decode(&key().encode(named), named), Some(key()));
        }
    }

    #[test]
    fn other_bytes_mean_nothing() {
        let decode = |token| TokenKey::decode(&token, Named::Allocation);
        assert_eq!(decode([0; 64]), None);
        assert_eq!(decode([0xff; 64]), None);
        assert_eq!(decode(key().encode(Named::Backing)), None);
        for place in [0, 8] {
            let mut token = key().encode(Named::Allocation);
            token[place] ^= 0x80;
            assert_eq!(decode(token), None, "byte {place}");
        }
    }

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let own = Process::own().unwrap();
        assert_eq!(Process::find(own.pid), Some(own));
        assert!(own.began > 0);
        assert_eq!(Process::find(i32::MAX), None);
    }
}

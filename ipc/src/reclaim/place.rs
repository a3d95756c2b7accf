//! The names of sockets, and the list of the processes that have one.
//!
//! Without a folder, names are abstract: they exist in one network namespace and end with the process. With a folder, each
//! socket is a file, so containers that share the folder meet. A file whose process has ended is removed by the next one
//! that lists the folder.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::{env, fs, io};

use crate::reclaim::datagram::{self, Address, LONGEST_PATH};
use crate::reclaim::message::VERSION;
use crate::socket::random;

const VARIABLE: &str = "CACHETTE_RECLAIM_DIR";
/// Every abstract name of the network namespace.
const NAMES: &str = "/proc/net/unix";

/// The stable identity of a device.
pub type Device = [u8; 16];

/// Where the processes of a user find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// By abstract names, in one network namespace.
    Namespace,
    /// By socket files in a folder.
    Folder(PathBuf),
}

/// Another process that answers for a device.
#[derive(Clone)]
pub struct NeighbourAddress {
    /// The device.
    pub device: Device,
    /// The process, by its number in its own namespace.
    pub pid: u32,
    pub(crate) name: String,
    pub(crate) address: Address,
}

impl NeighbourAddress {
    /// The name of its socket, which no other process has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for NeighbourAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NeighbourAddress").field("pid", &self.pid).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A socket with a name. The file of the name, if there is one, is removed with it.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) socket: OwnedFd,
    pub(crate) name: String,
    file: Option<PathBuf>,
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // If this fails, the next process that lists the folder removes it.
            let _ = fs::remove_file(file);
        }
    }
}

impl Place {
    /// The folder of `CACHETTE_RECLAIM_DIR` if it is set, and otherwise the network namespace.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::of(env::var_os(VARIABLE))
    }

    fn of(folder: Option<OsString>) -> Self {
        folder.filter(|folder| !folder.is_empty()).map_or(Self::Namespace, |folder| Self::Folder(folder.into()))
    }

    /// Binds a socket that answers for a device.
    pub(crate) fn bind(&self, device: &Device) -> io::Result<Named> {
        // The error of a list that cannot be read comes before any other process relies on the answers.
        self.names()?;
        let random = u32::from_le_bytes(random()?);
        let (id, pid) = (u128::from_be_bytes(*device), std::process::id());
        let name = format!("{}{id:032x}-{pid}-{random:08x}", self.prefix());
        self.bind_name(name)
    }

    /// Binds a socket that asks, and is not found by others.
    pub(crate) fn bind_asker(&self) -> io::Result<Named> {
        match self {
            Self::Namespace => {
                let address = Address::named(b"").ok_or(io::ErrorKind::InvalidInput)?;
                Ok(Named { socket: datagram::bind(&address)?, name: String::new(), file: None })
            }
            Self::Folder(_) => {
                let (pid, random) = (std::process::id(), u32::from_le_bytes(random()?));
                self.bind_name(format!("{}ask-{pid}-{random:08x}", self.prefix()))
            }
        }
    }

    fn bind_name(&self, name: String) -> io::Result<Named> {
        let socket = datagram::bind(&self.address(&name)?)?;
        let file = match self {
            Self::Namespace => None,
            Self::Folder(folder) => Some(folder.join(&name)),
        };
        Ok(Named { socket, name, file })
    }

    /// The processes that answer for a device, or for any. Files of processes that have ended are removed.
    pub(crate) fn peers(&self, device: Option<&Device>) -> io::Result<Vec<NeighbourAddress>> {
        let mut peers = Vec::new();
        for name in self.names()? {
            let Ok(address) = self.address(&name) else { continue };
            if let Self::Folder(folder) = self
                && !datagram::has_socket(&address)
            {
                // Another process may have removed it first.
                let _ = fs::remove_file(folder.join(&name));
                continue;
            }
            let Some((found, pid)) = parse(&name, &self.prefix()) else { continue };
            if device.is_none_or(|device| *device == found) {
                peers.push(NeighbourAddress { device: found, pid, name, address });
            }
        }
        Ok(peers)
    }

    /// The names of this crate in the place, those of askers too.
    fn names(&self) -> io::Result<Vec<String>> {
        match self {
            Self::Namespace => Ok(names_in(&fs::read_to_string(NAMES)?, &self.prefix())),
            Self::Folder(folder) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(folder)? {
                    let entry = entry?;
                    // Other files of the user stay, whatever their names are.
                    let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
                    let name = entry.file_name().into_string().ok().filter(|_| is_socket);
                    names.extend(name.filter(|name| name.starts_with(&self.prefix())));
                }
                Ok(names)
            }
        }
    }

    /// What every name of this user and version begins with. A folder belongs to one user.
    fn prefix(&self) -> String {
        match self {
            Self::Namespace => format!("cachette-reclaim{VERSION}-{}-", rustix::process::getuid().as_raw()),
            Self::Folder(_) => format!("r{VERSION}-"),
        }
    }

    fn address(&self, name: &str) -> io::Result<Address> {
        let address = match self {
            Self::Namespace => Address::named(name.as_bytes()),
            Self::Folder(folder) => Address::file(&folder.join(name)),
        };
        address.ok_or_else(|| {
            let text = format!("the path of {VARIABLE} is too long: with {name} it has at most {LONGEST_PATH} bytes");
            io::Error::new(io::ErrorKind::InvalidFilename, text)
        })
    }
}

/// The abstract names with a prefix in the table of the kernel. A name is the last column, after an `@`.
fn names_in(table: &str, prefix: &str) -> Vec<String> {
    let names = table.lines().filter_map(|line| line.rsplit_once(' ')?.1.strip_prefix('@'));
    names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
}

/// The device and the process of a name.
fn parse(name: &str, prefix: &str) -> Option<(Device, u32)> {
    let mut parts = name.strip_prefix(prefix)?.split('-');
    let device = parts.next().filter(|text| text.len() == 32)?;
    let device = u128::from_str_radix(device, 16).ok()?.to_be_bytes();
    let pid = parts.next()?.parse().ok()?;
    parts.next().filter(|text| text.len() == 8)?;
    parts.next().is_none().then_some((device, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_name_is_found_by_its_device_and_gone_with_the_socket() {
        let folder = tempfile();
        for place in [Place::Namespace, Place::Folder(folder.clone())] {
            let (one, other) = (random().unwrap(), random().unwrap());
            let named = place.bind(&one).unwrap();
            let found = place.peers(Some(&one)).unwrap();
            assert_eq!((found.len(), &found[0].name, found[0].pid), (1, &named.name, std::process::id()), "{place:?}");
            assert!(place.peers(None).unwrap().iter().any(|peer| peer.device == one));
            assert!(place.peers(Some(&other)).unwrap().is_empty());
            drop(named);
            assert!(place.peers(Some(&one)).unwrap().is_empty());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn the_files_of_ended_processes_are_removed_and_others_stay() {
        let folder = tempfile();
        let place = Place::Folder(folder.clone());
        for named in [place.bind(&[1; 16]).unwrap(), place.bind_asker().unwrap()] {
            // As after a kill: the socket closes and the file stays.
            let kept = folder.join("kept");
            fs::rename(folder.join(&named.name), &kept).unwrap();
            let name = folder.join(&named.name);
            drop(named);
            fs::rename(kept, name).unwrap();
        }
        fs::write(folder.join("r1-a-file-of-the-user"), b"").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        assert!(place.peers(None).unwrap().is_empty());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_is_missing_or_has_a_long_path_is_an_error() {
        assert!(Place::Folder("/nowhere/at/all".into()).bind(&[1; 16]).is_err());
        let folder = tempfile().join("x".repeat(100));
        fs::create_dir(&folder).unwrap();
        let error = Place::Folder(folder.clone()).bind(&[1; 16]).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn names_of_other_users_versions_and_programs_are_not_read() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 111 @cachette-reclaim1-7-00-1-2\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 112 @cachette-reclaim1-77-00-1-2\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 113\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 114 /run/cachette-reclaim1-7-\n";
        assert_eq!(names_in(table, "cachette-reclaim1-7-"), ["cachette-reclaim1-7-00-1-2"]);
        let name = format!("p-{:032x}-42-00000001", 5);
        assert_eq!(parse(&name, "p-"), Some((5_u128.to_be_bytes(), 42)));
        for wrong in ["p-", "p-5-42-00000001", &name[..name.len() - 1], &format!("{name}-"), &name.replace("42", "x")] {
            assert_eq!(parse(wrong, "p-"), None, "{wrong}");
        }
    }

    #[test]
    fn an_empty_variable_names_no_folder() {
        assert_eq!(Place::of(Some("".into())), Place::Namespace);
        assert_eq!(Place::of(Some("/x".into())), Place::Folder("/x".into()));
    }

    fn tempfile() -> PathBuf {
        let folder = env::temp_dir().join(format!("cr-{:016x}", u64::from_le_bytes(random().unwrap())));
        fs::create_dir(&folder).unwrap();
        folder
    }
}

//! The two transports to an exporter: by socket name, and by pidfd.
//!
//! The name is tried first: it needs no privilege, and works within one network namespace. If no process has the name,
//! pidfd is tried. [`VARIABLE`] restricts an importer to one of them.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::read_link;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::error::OpenError;
use crate::handle::ExporterAddress;
use crate::pidfd::{self, ConnectError};
use crate::socket;

/// Names the only transport to use: `name` or `pidfd`.
const VARIABLE: &str = "CACHETTE_SHARE_BY";

/// Which transports an importer may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    /// The name, then pidfd if no process has the name.
    Both,
    /// The name only.
    Name,
    /// Pidfd only.
    Pidfd,
}

impl Transport {
    fn parse(value: Option<&OsStr>) -> Result<Self, OpenError> {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(Self::Both) };
        match value.to_str() {
            Some("name") => Ok(Self::Name),
            Some("pidfd") => Ok(Self::Pidfd),
            _ => Err(OpenError::UnknownTransport { given: value.to_string_lossy().into_owned() }),
        }
    }
}

/// Connects to an exporter within `limit`, and verifies that it has the same user.
pub(crate) fn connect(address: &ExporterAddress, limit: Duration) -> Result<OwnedFd, OpenError> {
    let transport = Transport::parse(std::env::var_os(VARIABLE).as_deref())?;
    if transport != Transport::Pidfd
        && let Some(socket) = connect_by_name(address, limit)?
    {
        return Ok(socket);
    }
    if transport == Transport::Name {
        return Err(OpenError::Gone { pid: address.pid });
    }
    connect_by_pidfd(address, limit, transport)
}

/// Connects by name; `None` if no process has the name, or only a process of another user that is not the exporter.
fn connect_by_name(address: &ExporterAddress, limit: Duration) -> Result<Option<OwnedFd>, OpenError> {
    let pid = address.pid;
    let socket = match socket::connect(&address.socket, limit) {
        Ok(socket) => socket,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => Ok(None),
                io::ErrorKind::WouldBlock => Err(OpenError::NoAnswer { pid }),
                _ => Err(OpenError::system(&error)),
            };
        }
    };
    // The key is sent only to a process of the same user.
    let peer = socket::peer(socket.as_fd()).map_err(|error| OpenError::system(&error))?;
    if peer.is_same_user() {
        return Ok(Some(socket));
    }
    // A name is free once its process ends, so another user may have taken it. The exporter may still be reachable.
    if peer.pid == i64::from(pid) { Err(OpenError::OtherUser { pid }) } else { Ok(None) }
}

fn connect_by_pidfd(address: &ExporterAddress, limit: Duration, transport: Transport) -> Result<OwnedFd, OpenError> {
    pidfd::connect(address, limit).map_err(|error| match error {
        ConnectError::Other(error) => error,
        ConnectError::Forbidden(why) => forbidden(address.pid, &why, transport),
    })
}

/// Why an exporter cannot be reached whose descriptors the kernel does not let this process duplicate.
fn forbidden(pid: u32, why: &str, transport: Transport) -> OpenError {
    // The name would be visible here, so the exporter is gone and pidfd would not help.
    if transport == Transport::Both && is_in_this_network(pid) {
        return OpenError::Gone { pid };
    }
    let why = match transport {
        Transport::Pidfd => format!("{VARIABLE} allows pidfd only, and {why}"),
        _ => format!("no process has its socket name in this network namespace, and {why}"),
    };
    OpenError::OutOfReach { pid, why }
}

/// Whether a process is in this one's network namespace, or does not exist.
fn is_in_this_network(pid: u32) -> bool {
    match read_link(format!("/proc/{pid}/ns/net")) {
        Ok(theirs) => read_link("/proc/self/ns/net").is_ok_and(|own| own == theirs),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::listener::Listener;

    #[test]
    fn the_variable_names_one_transport_or_none() {
        let parse = |text: &str| Transport::parse(Some(OsStr::new(text)));
        assert_eq!(Transport::parse(None), Ok(Transport::Both));
        assert_eq!(parse(""), Ok(Transport::Both));
        assert_eq!(parse("name"), Ok(Transport::Name));
        assert_eq!(parse("pidfd"), Ok(Transport::Pidfd));
        for wrong in ["Name", "socket", "name,pidfd", " pidfd"] {
            let why = parse(wrong).unwrap_err().to_string();
            assert!(why.contains(VARIABLE) && why.contains(wrong), "{why}");
        }
    }

    #[test]
    fn what_the_kernel_forbids_matters_only_without_the_name() {
        let pid = std::process::id();
        assert_eq!(forbidden(pid, "EPERM", Transport::Both), OpenError::Gone { pid }, "its name would be visible");
        let why = forbidden(pid, "EPERM", Transport::Pidfd).to_string();
        assert!(why.contains(VARIABLE) && why.contains("EPERM"), "{why}");
    }

    #[test]
    fn an_exporter_that_accepts_nobody_gives_no_answer() {
        let (_listener, address) = Listener::bind().unwrap();
        let limit = Duration::from_millis(20);
        let (mut waiting, mut start) = (Vec::new(), Instant::now());
        let full = loop {
            match connect(&address, limit) {
                Ok(client) => waiting.push(client),
                Err(full) => break full,
            }
            start = Instant::now();
        };
        assert_eq!(full, OpenError::NoAnswer { pid: address.pid });
        assert!(start.elapsed() >= limit, "it waits for a place among the others");
    }

    #[test]
    fn a_process_and_a_missing_one_count_as_in_this_network() {
        assert!(is_in_this_network(std::process::id()));
        assert!(is_in_this_network(u32::MAX));
    }
}

//! The two ways to the process that shared memory: by the name of its socket, and by its door.
//!
//! The name comes first: it needs no right and is there wherever both see the same network namespace. Where nobody has
//! the name, the door is tried. [`VARIABLE`] allows one of them alone.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::read_link;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::door::{self, Shut};
use super::handle::Place;
use super::link;
use super::problem::ShareProblem;

/// Names the one way that is allowed: `name` or `pidfd`.
const VARIABLE: &str = "CACHETTE_SHARE_BY";

/// Which ways may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By name, and by the door where nobody has the name.
    Both,
    /// By name alone.
    Name,
    /// By the door alone.
    Pidfd,
}

impl Way {
    /// What the environment allows.
    fn allowed() -> Result<Self, ShareProblem> {
        Self::parse(std::env::var_os(VARIABLE).as_deref())
    }

    fn parse(value: Option<&OsStr>) -> Result<Self, ShareProblem> {
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return Ok(Self::Both);
        };
        match value.to_str() {
            Some("name") => Ok(Self::Name),
            Some("pidfd") => Ok(Self::Pidfd),
            _ => Err(ShareProblem::UnknownWay { given: value.to_string_lossy().into_owned() }),
        }
    }
}

/// A connection to a process, for which it may take as long as `limit`. That it is of this user is known.
pub(super) fn reach(place: &Place, limit: Duration) -> Result<OwnedFd, ShareProblem> {
    let way = Way::allowed()?;
    if way != Way::Pidfd
        && let Some(socket) = by_name(place, limit)?
    {
        return Ok(socket);
    }
    if way == Way::Name {
        return Err(ShareProblem::Gone { pid: place.pid });
    }
    by_door(place, limit, way)
}

/// Connects by name; `None` if nobody has it here, or another user's process that is not the one meant.
fn by_name(place: &Place, limit: Duration) -> Result<Option<OwnedFd>, ShareProblem> {
    let pid = place.pid;
    let socket = match link::connect(&place.socket, limit) {
        Ok(socket) => socket,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => Ok(None),
                io::ErrorKind::WouldBlock => Err(ShareProblem::NoAnswer { pid }),
                _ => Err(system(&error)),
            };
        }
    };
    // The key is told to nobody but a process of the same user.
    let peer = link::peer(socket.as_fd()).map_err(|error| system(&error))?;
    if peer.is_same_user() {
        return Ok(Some(socket));
    }
    // A name is free once its process ends. Another user may take it then, which says nothing about that process.
    if peer.pid == i64::from(pid) {
        return Err(ShareProblem::OtherUser { pid });
    }
    Ok(None)
}

/// Comes in by the door.
fn by_door(place: &Place, limit: Duration, way: Way) -> Result<OwnedFd, ShareProblem> {
    let pid = place.pid;
    door::knock(place, limit).map_err(|shut| match shut {
        Shut::Gone => ShareProblem::Gone { pid },
        Shut::OtherUser => ShareProblem::OtherUser { pid },
        Shut::NoAnswer => ShareProblem::NoAnswer { pid },
        Shut::System(error) => system(&error),
        // Its name would be found here, so the door would not help.
        Shut::Refused(_) if way == Way::Both && is_of_this_network(pid) => ShareProblem::Gone { pid },
        Shut::Refused(why) => ShareProblem::OutOfReach {
            pid,
            why: match way {
                Way::Pidfd => format!("{VARIABLE} allows no other way than pidfd, and {why}"),
                _ => format!("nobody has its name in this network namespace, and {why}"),
            },
        },
    })
}

/// Whether a process is known to be in this one's network namespace, or to be gone.
fn is_of_this_network(pid: u32) -> bool {
    match read_link(format!("/proc/{pid}/ns/net")) {
        Ok(theirs) => read_link("/proc/self/ns/net").is_ok_and(|own| own == theirs),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

pub(super) fn system(error: &io::Error) -> ShareProblem {
    ShareProblem::system("reach the process that shared the memory", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_one_way_or_none() {
        let parse = |text: &str| Way::parse(Some(OsStr::new(text)));
        assert_eq!(Way::parse(None), Ok(Way::Both));
        assert_eq!(parse(""), Ok(Way::Both));
        assert_eq!(parse("name"), Ok(Way::Name));
        assert_eq!(parse("pidfd"), Ok(Way::Pidfd));
        for wrong in ["Name", "socket", "name,pidfd", " pidfd"] {
            let why = parse(wrong).unwrap_err().to_string();
            assert!(why.contains(VARIABLE) && why.contains(wrong), "{why}");
        }
    }

    #[test]
    fn a_process_is_in_its_own_network_and_one_that_is_gone_in_no_other() {
        assert!(is_of_this_network(std::process::id()));
        assert!(is_of_this_network(u32::MAX));
    }
}

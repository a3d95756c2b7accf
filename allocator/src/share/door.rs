//! The way into a process that does not need a name: its door.
//!
//! Names of sockets belong to a network namespace, and descriptors to a process. So the exporter keeps a pair of
//! sockets, the door: its thread listens at the inner end, and the outer one is only there for others to fetch
//! (`pidfd_getfd`), by the number that is in the handle. Whoever has fetched it sends one end of a pair of its own
//! through it, a knock, and speaks over the other end as if it had connected by name.
//!
//! A number says little: by the time that it is read it may be another file's, and the process another one. So the outer
//! end has a name too, which nobody can connect to, and which tells of which desk it is wherever it is looked at. It is
//! asked for that, and for the process that made it, before anything is sent.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::handle::Place;
use super::link;
use super::wire::KNOCK;

/// Both ends of a door.
#[derive(Debug)]
pub(super) struct Door {
    inner: OwnedFd,
    /// Nothing here uses it: others fetch it.
    outer: OwnedFd,
}

impl Door {
    /// The door of the desk that has this name.
    pub(super) fn open(name: &[u8; 16]) -> io::Result<Self> {
        let (inner, outer) = link::pair()?;
        link::name_door(outer.as_fd(), name)?;
        Ok(Self { inner, outer })
    }

    /// By which others fetch it.
    pub(super) fn number(&self) -> u32 {
        // An open descriptor has no negative number.
        u32::try_from(self.outer.as_raw_fd()).unwrap_or(u32::MAX)
    }

    /// What to listen at.
    pub(super) fn inner(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }

    /// The connection that the next knock brought, or `None` if it brought something else; it never blocks.
    pub(super) fn answer(&self) -> io::Result<Option<OwnedFd>> {
        let (bytes, mut came) = link::receive(self.inner())?;
        let socket = came.pop().filter(|_| came.is_empty() && bytes == KNOCK);
        let socket = socket.filter(|socket| link::speaks_packets(socket.as_fd()));
        let ready = |socket: &OwnedFd| rustix::io::ioctl_fionbio(socket, true).is_ok();
        Ok(socket.filter(ready))
    }
}

/// Why nobody came in by a door.
#[derive(Debug)]
pub(super) enum Shut {
    /// The process is gone, or has no such door any more.
    Gone,
    /// The kernel does not let this process fetch it.
    Refused(String),
    /// The process that has the door is another user's.
    OtherUser,
    /// Too many have knocked, and nobody answers.
    NoAnswer,
    /// Something else went wrong.
    System(io::Error),
}

impl From<Errno> for Shut {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// Fetches the door of a process and knocks: the connection to it. Where too many have knocked, it tries for as long as
/// `limit`.
pub(super) fn knock(place: &Place, limit: Duration) -> Result<OwnedFd, Shut> {
    let door = fetch(place)?;
    check(door.as_fd(), place)?;
    let (near, far) = link::pair().map_err(Shut::System)?;
    let deadline = Instant::now() + limit;
    loop {
        let sent = link::send(door.as_fd(), KNOCK, &[far.as_fd()]);
        let Err(error) = sent else {
            return Ok(near);
        };
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            io::ErrorKind::WouldBlock => return Err(Shut::NoAnswer),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                return Err(Shut::Gone);
            }
            _ => return Err(Shut::System(error)),
        }
    }
}

/// A copy of the descriptor that has the door's number in its process.
fn fetch(place: &Place) -> Result<OwnedFd, Shut> {
    let pid = i32::try_from(place.pid).ok().and_then(Pid::from_raw);
    let (Some(pid), Ok(number)) = (pid, i32::try_from(place.door)) else {
        return Err(Shut::Gone);
    };
    let refused = |call: &str, error: Errno| match error {
        Errno::SRCH | Errno::BADF | Errno::INVAL => Shut::Gone,
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => Shut::Refused(format!("{call}: {error}")),
        _ => error.into(),
    };
    let process = pidfd_open(pid, PidfdFlags::empty());
    let process = process.map_err(|error| refused("pidfd_open", error))?;
    let door = pidfd_getfd(process, number, PidfdGetfdFlags::empty());
    door.map_err(|error| refused("pidfd_getfd", error))
}

/// Whether it is the door that was meant. Nothing has been sent so far, and nothing is sent to anybody else.
fn check(door: BorrowedFd<'_>, place: &Place) -> Result<(), Shut> {
    if !link::speaks_packets(door) || !link::is_door_of(door, &place.socket) {
        return Err(Shut::Gone);
    }
    // Both ends of a pair say who made it.
    let maker = link::peer(door).map_err(Shut::System)?;
    if maker.pid != i64::from(place.pid) {
        return Err(Shut::Gone);
    }
    if maker.is_same_user() { Ok(()) } else { Err(Shut::OtherUser) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn door() -> (Door, Place) {
        let socket = link::random().unwrap();
        let door = Door::open(&socket).unwrap();
        let place = Place { pid: std::process::id(), socket, door: door.number() };
        (door, place)
    }

    /// Where the kernel lets nobody fetch anything, there is nothing to knock at.
    fn knocks(place: &Place) -> Option<Result<OwnedFd, Shut>> {
        let knocked = knock(place, Duration::ZERO);
        if let Err(Shut::Refused(why)) = &knocked {
            eprintln!("not tried, as the kernel refuses: {why}");
            return None;
        }
        Some(knocked)
    }

    #[test]
    fn whoever_knocks_is_connected() {
        let (door, place) = door();
        let Some(near) = knocks(&place) else { return };
        let near = near.unwrap();
        let far = door.answer().unwrap().expect("somebody knocked");
        link::send(near.as_fd(), b"hello", &[]).unwrap();
        assert_eq!(link::receive(far.as_fd()).unwrap().0, b"hello");
        assert!(link::peer(far.as_fd()).unwrap().is_same_user());
        drop(near);
        assert!(link::receive(far.as_fd()).unwrap().0.is_empty());
        let silent = door.answer().unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_no_knock_is_dropped_and_the_next_is_heard() {
        let (door, _) = door();
        let (one, _two) = link::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let stream = std::os::unix::net::UnixStream::pair().unwrap().0;
        let (one, outer) = (one.as_fd(), door.outer.as_fd());
        let rubbish: [(&[u8], &[BorrowedFd<'_>]); 7] = [
            (b"", &[]),
            (KNOCK, &[]),
            (KNOCK, &[one, one]),
            (KNOCK, &[file.as_fd()]),
            (KNOCK, &[stream.as_fd()]),
            (b"KK", &[one]),
            (b"X", &[one]),
        ];
        for (bytes, with) in rubbish {
            link::send(outer, bytes, with).unwrap();
            assert!(door.answer().unwrap().is_none(), "{bytes:?}, {with:?}");
        }
        link::send(outer, KNOCK, &[one]).unwrap();
        assert!(door.answer().unwrap().is_some());
    }

    /// D8: a number that is another file's by now, or another process's.
    #[test]
    fn nothing_is_sent_through_what_is_not_the_door_that_was_meant() {
        let ((own, place), (other, theirs)) = (door(), door());
        let closed = door().0.number();
        let file = File::open("/dev/null").unwrap();
        let (plain, _end) = link::pair().unwrap();
        let number = |file: &dyn AsRawFd| u32::try_from(file.as_raw_fd()).unwrap();
        for wrong in [theirs.door, number(&file), number(&plain), closed, u32::MAX, i32::MAX.cast_unsigned()] {
            let place = Place { door: wrong, ..place };
            let Some(knocked) = knocks(&place) else {
                return;
            };
            assert!(matches!(knocked, Err(Shut::Gone)), "{knocked:?}");
        }
        for (door, end) in [(&own, "its own"), (&other, "the other")] {
            let silent = door.answer().unwrap_err();
            assert_eq!(silent.kind(), io::ErrorKind::WouldBlock, "{end}");
        }
    }

    #[test]
    fn a_door_says_who_made_it() {
        let (door, place) = door();
        check(door.outer.as_fd(), &place).unwrap();
        let other = Place { pid: place.pid + 1, ..place };
        assert!(matches!(check(door.outer.as_fd(), &other), Err(Shut::Gone)));
    }

    #[test]
    fn a_process_that_is_not_there_has_no_door() {
        let (_door, place) = door();
        for pid in [0, i32::MAX.cast_unsigned(), u32::MAX] {
            if let Some(knocked) = knocks(&Place { pid, ..place }) {
                assert!(matches!(knocked, Err(Shut::Gone)), "{knocked:?}");
            }
        }
    }
}

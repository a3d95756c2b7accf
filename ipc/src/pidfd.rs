//! The connection to an exporter whose socket name is not visible: by `pidfd_getfd`.
//!
//! Socket names belong to a network namespace, and descriptors to a process. So the exporter keeps a socket pair: its
//! thread reads from one end, and importers duplicate the other by the number in the handle. An importer sends one end
//! of a new pair through it, and uses the other end as if it had connected by name.
//!
//! By the time of use, the number may be another file and the process another one. So the shared end is bound to a name
//! made from the exporter's. The importer checks that name, the kind of socket and its creator before it sends anything.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::error::OpenError;
use crate::handle::ExporterAddress;
use crate::message::CONNECT;
use crate::socket;

/// A socket pair whose one end other processes duplicate.
#[derive(Debug)]
pub(crate) struct PidfdSocket {
    inner: OwnedFd,
    /// Only other processes use it.
    outer: OwnedFd,
}

impl PidfdSocket {
    /// The socket of the exporter with this name.
    pub(crate) fn bind(name: &[u8; 16]) -> io::Result<Self> {
        let (inner, outer) = socket::pair()?;
        socket::bind_pidfd_name(outer.as_fd(), name)?;
        Ok(Self { inner, outer })
    }

    /// The number by which other processes duplicate it.
    pub(crate) fn descriptor(&self) -> u32 {
        // An open descriptor has no negative number.
        u32::try_from(self.outer.as_raw_fd()).unwrap_or(u32::MAX)
    }

    /// Accepts the next connection, without blocking; `None` if the message was something else.
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let (bytes, mut descriptors) = socket::receive(self.as_fd())?;
        let client = descriptors.pop().filter(|_| descriptors.is_empty() && bytes == CONNECT);
        let client = client.filter(|client| socket::is_seqpacket(client.as_fd()));
        Ok(client.filter(|client| rustix::io::ioctl_fionbio(client, true).is_ok()))
    }
}

impl AsFd for PidfdSocket {
    /// The end that the exporter reads.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Why an importer could not connect through a pidfd socket.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The kernel does not let this process duplicate descriptors of the other.
    Forbidden(String),
    /// Anything else.
    Other(OpenError),
}

impl From<OpenError> for ConnectError {
    fn from(error: OpenError) -> Self {
        Self::Other(error)
    }
}

/// Connects to an exporter. If its queue is full, it retries until `limit` has passed.
pub(crate) fn connect(address: &ExporterAddress, limit: Duration) -> Result<OwnedFd, ConnectError> {
    let pid = address.pid;
    let system = |error: io::Error| OpenError::system(&error);
    let pidfd_socket = duplicate(address)?;
    check(pidfd_socket.as_fd(), address)?;
    let (near, far) = socket::pair().map_err(system)?;
    let deadline = Instant::now() + limit;
    loop {
        let Err(error) = socket::send(pidfd_socket.as_fd(), CONNECT, &[far.as_fd()]) else { return Ok(near) };
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            io::ErrorKind::WouldBlock => return Err(OpenError::NoAnswer { pid }.into()),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                return Err(OpenError::Gone { pid }.into());
            }
            _ => return Err(system(error).into()),
        }
    }
}

/// Duplicates the descriptor that the address names.
fn duplicate(address: &ExporterAddress) -> Result<OwnedFd, ConnectError> {
    let gone = OpenError::Gone { pid: address.pid };
    let pid = i32::try_from(address.pid).ok().and_then(Pid::from_raw);
    let (Some(pid), Ok(number)) = (pid, i32::try_from(address.descriptor)) else { return Err(gone.into()) };
    let failed = |call: &str, error: Errno| match error {
        Errno::SRCH | Errno::BADF | Errno::INVAL => gone.clone().into(),
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => ConnectError::Forbidden(format!("{call}: {error}")),
        _ => OpenError::system(&error.into()).into(),
    };
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed("pidfd_open", error))?;
    let pidfd_socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty());
    pidfd_socket.map_err(|error| failed("pidfd_getfd", error))
}

/// Whether a descriptor is the pidfd socket of this exporter. Nothing has been sent to it so far.
fn check(any: BorrowedFd<'_>, address: &ExporterAddress) -> Result<(), OpenError> {
    let pid = address.pid;
    if !socket::is_seqpacket(any) || !socket::has_pidfd_name(any, &address.socket) {
        return Err(OpenError::Gone { pid });
    }
    // Both ends of a pair report its creator.
    let creator = socket::peer(any).map_err(|error| OpenError::system(&error))?;
    if creator.pid != i64::from(pid) {
        return Err(OpenError::Gone { pid });
    }
    if creator.is_same_user() { Ok(()) } else { Err(OpenError::OtherUser { pid }) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn bound() -> (PidfdSocket, ExporterAddress) {
        let name = socket::random().unwrap();
        let bound = PidfdSocket::bind(&name).unwrap();
        let address = ExporterAddress { pid: std::process::id(), socket: name, descriptor: bound.descriptor() };
        (bound, address)
    }

    /// Connects; `None` if the kernel forbids it here, so that there is nothing to test.
    fn try_connect(address: &ExporterAddress) -> Option<Result<OwnedFd, OpenError>> {
        match connect(address, Duration::ZERO) {
            Ok(connection) => Some(Ok(connection)),
            Err(ConnectError::Other(error)) => Some(Err(error)),
            Err(ConnectError::Forbidden(why)) => {
                eprintln!("skipped: the kernel forbids it: {why}");
                None
            }
        }
    }

    #[test]
    fn connect_gives_a_connection() {
        let (listening, address) = bound();
        let Some(near) = try_connect(&address) else { return };
        let near = near.unwrap();
        let far = listening.accept().unwrap().expect("a client connected");
        socket::send(near.as_fd(), b"hello", &[]).unwrap();
        assert_eq!(socket::receive(far.as_fd()).unwrap().0, b"hello");
        assert!(socket::peer(far.as_fd()).unwrap().is_same_user());
        drop(near);
        assert!(socket::receive(far.as_fd()).unwrap().0.is_empty());
        let silent = listening.accept().unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn other_messages_are_dropped_and_the_next_is_accepted() {
        let (listening, _) = bound();
        let (one, _two) = socket::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let stream = std::os::unix::net::UnixStream::pair().unwrap().0;
        let (one, outer) = (one.as_fd(), listening.outer.as_fd());
        let invalid: [(&[u8], &[BorrowedFd<'_>]); 7] = [
            (b"", &[]),
            (CONNECT, &[]),
            (CONNECT, &[one, one]),
            (CONNECT, &[file.as_fd()]),
            (CONNECT, &[stream.as_fd()]),
            (b"KK", &[one]),
            (b"X", &[one]),
        ];
        for (bytes, with) in invalid {
            socket::send(outer, bytes, with).unwrap();
            assert!(listening.accept().unwrap().is_none(), "{bytes:?}, {with:?}");
        }
        socket::send(outer, CONNECT, &[one]).unwrap();
        assert!(listening.accept().unwrap().is_some());
    }

    /// D8: a number that belongs to another file or another process by now.
    #[test]
    fn nothing_is_sent_through_another_descriptor() {
        let ((own, address), (other, theirs)) = (bound(), bound());
        let closed = bound().0.descriptor();
        let file = File::open("/dev/null").unwrap();
        let (plain, _end) = socket::pair().unwrap();
        let number = |file: &dyn AsRawFd| u32::try_from(file.as_raw_fd()).unwrap();
        for wrong in [theirs.descriptor, number(&file), number(&plain), closed, u32::MAX, i32::MAX.cast_unsigned()] {
            let Some(connected) = try_connect(&ExporterAddress { descriptor: wrong, ..address }) else { return };
            assert!(matches!(connected, Err(OpenError::Gone { .. })), "{connected:?}");
        }
        for (listening, end) in [(&own, "its own"), (&other, "the other")] {
            let silent = listening.accept().unwrap_err();
            assert_eq!(silent.kind(), io::ErrorKind::WouldBlock, "{end}");
        }
    }

    #[test]
    fn a_full_queue_is_waited_for_until_the_limit() {
        let (_listening, address) = bound();
        let full = loop {
            match try_connect(&address) {
                Some(Ok(_)) => {}
                Some(Err(full)) => break full,
                None => return,
            }
        };
        assert!(matches!(full, OpenError::NoAnswer { .. }), "{full:?}");
        let (start, limit) = (Instant::now(), Duration::from_millis(20));
        let full = connect(&address, limit);
        assert!(matches!(full, Err(ConnectError::Other(OpenError::NoAnswer { .. }))), "{full:?}");
        assert!(start.elapsed() >= limit);
    }

    #[test]
    fn an_exporter_that_has_closed_its_end_is_gone() {
        let (PidfdSocket { inner, outer: _outer }, address) = bound();
        drop(inner);
        let Some(connected) = try_connect(&address) else { return };
        assert!(matches!(connected, Err(OpenError::Gone { .. })), "{connected:?}");
    }

    #[test]
    fn a_pidfd_socket_reports_its_creator() {
        let (listening, address) = bound();
        check(listening.outer.as_fd(), &address).unwrap();
        let other = ExporterAddress { pid: address.pid + 1, ..address };
        assert!(matches!(check(listening.outer.as_fd(), &other), Err(OpenError::Gone { .. })));
    }

    #[test]
    fn a_process_that_does_not_exist_is_gone() {
        let (_listening, address) = bound();
        for pid in [0, i32::MAX.cast_unsigned(), u32::MAX] {
            if let Some(connected) = try_connect(&ExporterAddress { pid, ..address }) {
                assert!(matches!(connected, Err(OpenError::Gone { .. })), "{connected:?}");
            }
        }
    }
}

//! Sockets between processes of one host: messages, descriptors, and the credentials of the peer.
//!
//! Names are abstract: no file is left behind, and no other mount of the file system hides one. Every process that can
//! see the name can connect, so both ends ask the kernel for the peer's user. Each end of a socket pair reports the
//! process that created the pair.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::message::{BATCH, LONGEST};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Room for the descriptors of one message.
const RIGHTS: usize = rustix::cmsg_space!(ScmRights(BATCH));

/// Random bytes, from the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

pub(crate) fn listen(name: &[u8; 16]) -> io::Result<OwnedFd> {
    let socket = socket(SocketFlags::NONBLOCK)?;
    rustix::net::bind(&socket, &address(name)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to a name. If the backlog is full, it retries until `limit` has passed.
pub(crate) fn connect(name: &[u8; 16], limit: Duration) -> io::Result<OwnedFd> {
    let socket = socket(SocketFlags::NONBLOCK)?;
    let address = address(name)?;
    let deadline = Instant::now() + limit;
    loop {
        match rustix::net::connect(&socket, &address) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            connected => return Ok(connected.map(|()| socket)?),
        }
    }
}

/// Accepts a connection, without blocking.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::accept_with(listener, flags)?)
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, kind, flags, None)?)
}

/// Two connected sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(family, kind, flags, None)?)
}

fn address(name: &[u8; 16]) -> io::Result<SocketAddrUnix> {
    abstract_name("share", name)
}

fn abstract_name(what: &str, name: &[u8; 16]) -> io::Result<SocketAddrUnix> {
    let name = format!("cachette-{what}-{:032x}", u128::from_be_bytes(*name));
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Binds a pidfd socket to the name of its exporter, so that an importer can verify it.
pub(crate) fn bind_pidfd_name(socket: BorrowedFd<'_>, name: &[u8; 16]) -> io::Result<()> {
    Ok(rustix::net::bind(socket, &abstract_name("pidfd", name)?)?)
}

pub(crate) fn has_pidfd_name(socket: BorrowedFd<'_>, name: &[u8; 16]) -> bool {
    let bound = rustix::net::getsockname(socket).and_then(SocketAddrUnix::try_from);
    abstract_name("pidfd", name)
        .is_ok_and(|expected| bound.is_ok_and(|bound| bound.abstract_name() == expected.abstract_name()))
}

/// Whether a descriptor is a Unix socket of type `SOCK_SEQPACKET`.
pub(crate) fn is_seqpacket(any: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_domain(any) == Ok(AddressFamily::UNIX)
        && rustix::net::sockopt::socket_type(any) == Ok(SocketType::SEQPACKET)
}

/// The credentials of the process at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its number in this process's PID namespace; zero if it has none there.
    pub(crate) pid: i64,
    user: u32,
}

impl Peer {
    /// Whether it has the same effective user as this process.
    pub(crate) fn is_same_user(self) -> bool {
        self.user == rustix::process::geteuid().as_raw()
    }
}

/// The peer's credentials, which the kernel recorded when the connection or the pair was made.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: both pointers are to live variables of the types that this option takes, and `length` is the size.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if status == 0 { Ok(Peer { pid: i64::from(peer.pid), user: peer.uid }) } else { Err(io::Error::last_os_error()) }
}

/// Sends one message with descriptors, without blocking.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); RIGHTS];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut rights, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one message with its descriptors, without blocking. No bytes means that the peer has closed.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; LONGEST + 1];
    let mut space = [MaybeUninit::uninit(); RIGHTS];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, &mut slices, &mut rights, flags)?;
    let mut descriptors = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

/// Receives one message; blocks for at most `limit`.
pub(crate) fn receive_within(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let deadline = Instant::now() + limit;
    loop {
        match receive(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut waits = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        wait(&mut waits, Some(left))?;
    }
}

/// Shuts a connection or a listening socket down.
///
/// Closing the descriptor is not enough: a forked child keeps a copy of it for as long as it lives.
pub(crate) fn shutdown(socket: BorrowedFd<'_>) {
    // It fails if the peer has shut down first.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Waits until a descriptor is ready, or until `limit` has passed.
pub(crate) fn wait(waits: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    match poll(waits, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> (OwnedFd, OwnedFd) {
        let name = random().unwrap();
        let listener = listen(&name).unwrap();
        let near = connect(&name, Duration::from_secs(5)).unwrap();
        let far = accept(listener.as_fd()).unwrap();
        (near, far)
    }

    #[test]
    fn messages_arrive_whole_and_in_order_with_their_descriptors() {
        let (near, far) = connected();
        let (carried, _) = connected();
        send(near.as_fd(), b"one", &[]).unwrap();
        send(near.as_fd(), b"two", &[carried.as_fd(); BATCH]).unwrap();
        let (bytes, descriptors) = receive(far.as_fd()).unwrap();
        assert_eq!((bytes.as_slice(), descriptors.len()), (&b"one"[..], 0));
        let (bytes, descriptors) = receive(far.as_fd()).unwrap();
        assert_eq!((bytes.as_slice(), descriptors.len()), (&b"two"[..], BATCH));
    }

    #[test]
    fn an_error_of_the_system_ends_a_wait_for_a_message() {
        let (reader, _writer) = io::pipe().unwrap();
        let why = receive_within(reader.as_fd(), Duration::from_secs(60)).unwrap_err();
        assert_eq!(why.raw_os_error(), Some(libc::ENOTSOCK), "a pipe is no socket");
    }

    #[test]
    fn a_closed_peer_is_detected_and_a_silent_one_does_not_block() {
        let (near, far) = connected();
        let silent = receive(far.as_fd()).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
        let late = receive_within(far.as_fd(), Duration::from_millis(5)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(near);
        let (bytes, _) = receive_within(far.as_fd(), Duration::from_secs(5)).unwrap();
        assert!(bytes.is_empty());
        assert!(send(far.as_fd(), b"late", &[]).is_err());
    }

    /// A forked child holds such a copy.
    #[test]
    fn a_shutdown_is_detected_although_a_copy_is_open() {
        let (near, far) = connected();
        let copy = near.try_clone().unwrap();
        send(near.as_fd(), b"last", &[]).unwrap();
        shutdown(near.as_fd());
        drop(near);
        assert_eq!(receive(far.as_fd()).unwrap().0, b"last");
        assert!(receive(far.as_fd()).unwrap().0.is_empty());
        drop(copy);
        let name = random().unwrap();
        let listener = listen(&name).unwrap();
        let _copy = listener.try_clone().unwrap();
        shutdown(listener.as_fd());
        let refused = connect(&name, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_kernel_reports_the_user_of_the_peer() {
        let (near, far) = connected();
        let own = rustix::process::geteuid().as_raw();
        let (peer_of_near, peer_of_far) = (peer(near.as_fd()).unwrap(), peer(far.as_fd()).unwrap());
        assert_eq!(peer_of_near.user, own);
        assert!(peer_of_far.is_same_user());
        assert_eq!(peer_of_far.pid, i64::from(std::process::id()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer(file.as_fd()).is_err());
    }

    #[test]
    fn an_unused_name_refuses_connections() {
        let error = connect(&random().unwrap(), Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

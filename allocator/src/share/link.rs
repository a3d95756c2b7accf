//! Sockets between processes of one host: messages, descriptors, and who is at the other end.
//!
//! Names are abstract: there is no file to be left behind, and none that another mount of the file system would hide.
//! Whoever can reach the name can connect, so both ends ask the kernel which user the other is. The kernel knows that of
//! pairs as well: there each end names the process that made both.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use super::wire::{BATCH, LONGEST};

/// Connections that may wait until the exporter looks.
const BACKLOG: i32 = 64;
/// Room for the descriptors of one message.
const RIGHTS: usize = rustix::cmsg_space!(ScmRights(BATCH));

/// Random bytes, from the kernel.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
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

/// Listens under a name.
pub(super) fn listen(name: &[u8; 16]) -> io::Result<OwnedFd> {
    let socket = socket(SocketFlags::NONBLOCK)?;
    rustix::net::bind(&socket, &address(name)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to whoever listens under a name; where too many wait already, it tries for as long as `limit`.
pub(super) fn connect(name: &[u8; 16], limit: Duration) -> io::Result<OwnedFd> {
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

/// Accepts a connection; it never blocks.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::accept_with(listener, flags)?)
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, kind, flags, None)?)
}

/// Two sockets that are connected.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
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

/// Writes on a door whose it is.
pub(super) fn name_door(door: BorrowedFd<'_>, name: &[u8; 16]) -> io::Result<()> {
    Ok(rustix::net::bind(door, &abstract_name("door", name)?)?)
}

/// Whether that name is on it.
pub(super) fn is_door_of(door: BorrowedFd<'_>, name: &[u8; 16]) -> bool {
    let named = rustix::net::getsockname(door).and_then(SocketAddrUnix::try_from);
    abstract_name("door", name)
        .is_ok_and(|meant| named.is_ok_and(|named| named.abstract_name() == meant.abstract_name()))
}

/// Whether it is a socket of the kind that is used here.
pub(super) fn speaks_packets(any: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_domain(any) == Ok(AddressFamily::UNIX)
        && rustix::net::sockopt::socket_type(any) == Ok(SocketType::SEQPACKET)
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Its number as this process sees it; zero where it does not.
    pub(super) pid: i64,
    user: u32,
}

impl Peer {
    /// Whether it is one of this user's processes.
    pub(super) fn is_same_user(self) -> bool {
        self.user == rustix::process::geteuid().as_raw()
    }
}

/// Who is at the other end, as the kernel knows it since the connection or the pair was made.
pub(super) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: both pointers are to live variables of the types that this option has, and `length` says so.
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

/// Sends one message, with descriptors beside it; it never blocks.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); RIGHTS];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut rights, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one message, with the descriptors beside it; it never blocks. No bytes: the other end has closed.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
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

/// Receives one message, and waits for it as long as `limit`.
pub(super) fn receive_within(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
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

/// Ends a connection for both ends, or lets nobody connect any more.
///
/// Closing alone would not do where the process has forked: a child has a copy of every descriptor for as long as it
/// lives.
pub(super) fn end(socket: BorrowedFd<'_>) {
    // It fails where the other end was faster.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Waits until one of the descriptors has something to say, or for as long as `limit`.
pub(super) fn wait(waits: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<()> {
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
    fn messages_arrive_whole_and_in_order_with_what_they_carry() {
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
    fn an_end_that_closes_is_noticed_and_one_that_is_silent_is_not_waited_for() {
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

    /// What a forked child has of a connection is such a copy.
    #[test]
    fn an_end_is_noticed_although_there_is_a_copy_of_it() {
        let (near, far) = connected();
        let copy = near.try_clone().unwrap();
        send(near.as_fd(), b"last", &[]).unwrap();
        end(near.as_fd());
        drop(near);
        assert_eq!(receive(far.as_fd()).unwrap().0, b"last");
        assert!(receive(far.as_fd()).unwrap().0.is_empty());
        drop(copy);
        let name = random().unwrap();
        let listener = listen(&name).unwrap();
        let _copy = listener.try_clone().unwrap();
        end(listener.as_fd());
        let refused = connect(&name, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_kernel_says_which_user_is_at_the_other_end() {
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
    fn nobody_listens_under_a_name_that_nobody_took() {
        let error = connect(&random().unwrap(), Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

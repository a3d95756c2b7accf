//! Datagram sockets, and the credentials of the sender.
//!
//! The calls of `libc` are used directly, because the kernel reports the process number zero for a sender in another
//! namespace, which rustix cannot express.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::reclaim::message::{LENGTH, Message};

/// The bytes of an address before its name.
const FAMILY: usize = mem::offset_of!(libc::sockaddr_un, sun_path);
/// The bytes of credentials.
const CREDENTIALS: u32 = 12;
const _: () = assert!(size_of::<libc::ucred>() == CREDENTIALS as usize);
/// The bytes of the control message with credentials. There is no room for descriptors, so the kernel closes those.
const CONTROL: usize = {
    // SAFETY: the macro only computes.
    unsafe { libc::CMSG_SPACE(CREDENTIALS) as usize }
};
/// The bytes of the longest address.
const ADDRESS: libc::socklen_t = 110;
const _: () = assert!(size_of::<libc::sockaddr_un>() == ADDRESS as usize);

/// The address of a socket.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    raw: libc::sockaddr_un,
    length: libc::socklen_t,
}

impl Address {
    /// A name without a file; `None` if it is too long. An empty one makes the kernel choose.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        if name.is_empty() { Self::of(&[]) } else { Self::of(&[b"\0", name].concat()) }
    }

    /// A file; `None` if its path is too long.
    pub(crate) fn file(path: &Path) -> Option<Self> {
        Self::of(&[path.as_os_str().as_bytes(), b"\0"].concat())
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let mut raw = libc::sockaddr_un { sun_family: AddressFamily::UNIX.as_raw(), sun_path: [0; 108] };
        for (to, from) in raw.sun_path.get_mut(..bytes.len())?.iter_mut().zip(bytes) {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        Some(Self { raw, length: (FAMILY + bytes.len()).try_into().ok()? })
    }
}

/// The most bytes of a path to a socket.
pub(crate) const LONGEST_PATH: usize = 107;

/// A socket with an address. Received messages have the credentials of their sender.
pub(crate) fn bind(address: &Address) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    // SAFETY: the address is live, and `length` is at most its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address.raw).cast(), address.length) };
    if bound == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Sends a message, without blocking.
pub(crate) fn send(socket: BorrowedFd<'_>, to: &Address, message: &Message) -> io::Result<()> {
    let bytes = message.encode();
    // SAFETY: the bytes and the address are live, with these lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            (&raw const to.raw).cast(),
            to.length,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message of this user, without blocking. `Ok(None)` stands for a datagram that is dropped.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Message, Address)>> {
    // One byte more shows that a datagram is too long.
    let mut bytes = [0_u8; LENGTH + 1];
    let mut control = MaybeUninit::<[u64; CONTROL.div_ceil(8)]>::uninit();
    let mut sender = Address::of(&[]).ok_or(io::ErrorKind::InvalidInput)?;
    let mut slice = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all fields of this structure may be zero.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = (&raw mut sender.raw).cast();
    header.msg_namelen = ADDRESS;
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: every pointer of the header is to a live variable of the stated size.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    sender.length = header.msg_namelen;
    let user = user_of(&header);
    // A sender without an address gets no answer.
    let dropped = !is_same_user(user) || sender.length as usize <= FAMILY;
    let message = bytes.get(..received).filter(|_| !dropped).and_then(Message::decode);
    Ok(message.map(|message| (message, sender)))
}

/// The user in the credentials of a received message.
fn user_of(header: &libc::msghdr) -> Option<libc::uid_t> {
    // SAFETY: the kernel has filled the control bytes of this header, which are live.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: the macro returns null or a header within the control bytes.
    let control = unsafe { first.as_ref() }?;
    // SAFETY: the macro only computes.
    let is_whole = control.cmsg_len as usize >= unsafe { libc::CMSG_LEN(CREDENTIALS) } as usize;
    if control.cmsg_level != libc::SOL_SOCKET || control.cmsg_type != libc::SCM_CREDENTIALS || !is_whole {
        return None;
    }
    // SAFETY: the header is followed by its data.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: the control message says that these are whole credentials; their alignment does not matter.
    let credentials = unsafe { data.cast::<libc::ucred>().read_unaligned() };
    Some(credentials.uid)
}

/// Whether credentials belong to this user. The kernel states the real user of a sender.
fn is_same_user(user: Option<libc::uid_t>) -> bool {
    user == Some(rustix::process::getuid().as_raw())
}

/// Whether an address has a socket now.
pub(crate) fn has_socket(address: &Address) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(socket) = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None) else { return true };
    // SAFETY: the address is live, and `length` is at most its size.
    let connected = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address.raw).cast(), address.length) };
    connected == 0 || io::Error::last_os_error().kind() != io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix};

    use super::*;
    use crate::reclaim::message::Body;

    fn bound(name: &str) -> (OwnedFd, Address) {
        let address = Address::named(format!("cachette-test-{name}-{}", std::process::id()).as_bytes()).unwrap();
        (bind(&address).unwrap(), address)
    }

    #[test]
    fn a_message_of_this_user_arrives_with_the_address_for_its_answer() {
        let (here, to) = bound("arrives");
        let asker = bind(&Address::named(b"").unwrap()).unwrap();
        let question = Message { request: 7, body: Body::HowAreYou };
        send(asker.as_fd(), &to, &question).unwrap();
        let (received, from) = receive(here.as_fd()).unwrap().expect("it is a message");
        assert_eq!(received, question);
        send(here.as_fd(), &from, &Message { request: 7, body: Body::Given(5) }).unwrap();
        assert_eq!(receive(asker.as_fd()).unwrap().unwrap().0.body, Body::Given(5));
        assert_eq!(receive(asker.as_fd()).err().unwrap().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn another_user_and_missing_credentials_are_refused() {
        let own = rustix::process::getuid().as_raw();
        assert!(is_same_user(Some(own)));
        assert!(!is_same_user(Some(own + 1)) && !is_same_user(None));
    }

    #[test]
    fn credentials_of_another_user_are_read_from_the_message() {
        let mut control = [0_u64; 4];
        let credentials = libc::ucred { pid: 0, uid: 4242, gid: 1 };
        // SAFETY: all fields of this structure may be zero.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
        assert_eq!(size_of_val(&control), CONTROL);
        for (kind, user) in [(libc::SCM_CREDENTIALS, Some(4242)), (libc::SCM_RIGHTS, None)] {
            // SAFETY: the control bytes have room for one header with credentials.
            let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
            // SAFETY: the macro only computes.
            let length = unsafe { libc::CMSG_LEN(CREDENTIALS) };
            let control = libc::cmsghdr { cmsg_len: length as _, cmsg_level: libc::SOL_SOCKET, cmsg_type: kind };
            // SAFETY: as above.
            unsafe { first.write(control) };
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(first) };
            // SAFETY: as above.
            unsafe { data.cast::<libc::ucred>().write_unaligned(credentials) };
            assert_eq!(user_of(&header), user);
        }
        header.msg_controllen = 0;
        assert_eq!(user_of(&header), None);
    }

    #[test]
    fn descriptors_and_wrong_lengths_are_dropped() {
        let (here, _) = bound("dropped");
        let (asker, _) = bound("dropper");
        let name = format!("cachette-test-dropped-{}", std::process::id());
        let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let good = Message { request: 7, body: Body::HowAreYou }.encode();
        for bytes in [&good[..0], &good[..LENGTH - 1], &[&good[..], &[0; 99]].concat()] {
            rustix::net::sendto(&asker, bytes, SendFlags::empty(), &to).unwrap();
            assert!(receive(here.as_fd()).unwrap().is_none(), "{}", bytes.len());
        }
        // A copy of the write end that stays open would keep the pipe from its end.
        let (mut read, write) = io::pipe().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let carried = [write.as_fd()];
        assert!(rights.push(SendAncillaryMessage::ScmRights(&carried)));
        rustix::net::sendmsg_addr(&asker, &to, &[io::IoSlice::new(&good)], &mut rights, SendFlags::empty()).unwrap();
        assert!(receive(here.as_fd()).unwrap().is_some());
        drop(write);
        rustix::io::ioctl_fionbio(&read, true).unwrap();
        assert_eq!(io::Read::read(&mut read, &mut [0]).expect("no copy is open"), 0);
    }

    #[test]
    fn an_address_without_a_socket_is_detected() {
        let (here, address) = bound("gone");
        assert!(has_socket(&address));
        drop(here);
        assert!(!has_socket(&address));
    }

    #[test]
    fn a_name_that_is_too_long_has_no_address() {
        assert!(Address::named(&[b'a'; 107]).is_some() && Address::named(&[b'a'; 108]).is_none());
        let path = |bytes| Address::file(Path::new(&"a".repeat(bytes))).is_some();
        assert!(path(LONGEST_PATH) && !path(LONGEST_PATH + 1));
    }
}

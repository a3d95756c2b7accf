//! The transport by pidfd: what it reaches, and what it refuses.
//!
//! Some sandboxes forbid `pidfd_getfd`. There the cases check that the error says so.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};

use crate::bytes::{from_hex, holds};
use crate::refusals::{is_root, sealed};
use crate::second::Second;
use crate::{DIRECT, ELASTIC, MIB, TestAllocator, eventually, sharing};

/// Whether memory was opened by pidfd. If not, the kernel refused, and the error says what to do.
#[track_caller]
pub(crate) fn came_in(opened: Result<String, String>) -> bool {
    let Err(why) = opened else { return true };
    assert_is_refusal(&why);
    eprintln!("the kernel forbids pidfd here: {why}");
    false
}

#[track_caller]
fn assert_is_refusal(why: &str) {
    for part in ["cannot be reached", "pidfd_", "same network namespace", "ptrace_scope=0", "CAP_SYS_PTRACE"] {
        assert!(why.contains(part), "{why}");
    }
}

/// The descriptor of the pidfd socket in a handle.
fn descriptor_of(handle: &[u8]) -> u32 {
    u32::from_le_bytes(handle[96..100].try_into().expect("it has that many"))
}

/// A handle with another descriptor.
fn with_descriptor(mut handle: Vec<u8>, number: u32) -> Vec<u8> {
    handle[96..100].copy_from_slice(&number.to_le_bytes());
    sealed(handle)
}

/// D8, I4.
#[test]
fn d8_memory_is_opened_by_pidfd_and_its_closing_is_noticed() {
    for config in [DIRECT, ELASTIC] {
        let (test, memory, shared) = sharing(config, 5 * MIB);
        let mut second = Second::start_by("pidfd", "host");
        if !came_in(second.open("it", &shared.handle())) {
            return;
        }
        assert_eq!(shared.readers(), 1, "{config}");
        assert_eq!(second.ask("holds it 1").unwrap(), "true", "{config}");
        assert_eq!(second.ask("kept it").unwrap(), "true");
        second.ask("put it 2").unwrap();
        assert!(holds(&test.device, memory.address(), memory.bytes(), 2));
        second.ask("close it").unwrap();
        eventually("it is closed", || shared.readers() == 0);
        second.open("again", &shared.handle()).unwrap();
        // What this process withdraws, the other keeps.
        let handle = shared.handle();
        drop((shared, memory));
        let why = second.open("late", &with_descriptor(handle, 1)).unwrap_err();
        assert!(why.contains("has ended or has closed"), "{why}");
        assert_eq!(second.ask("holds again 2").unwrap(), "true", "{config}");
        second.kill();
        eventually("the memory is free", || test.allocator.stats().active_bytes.all.current == 0);
        test.assert_returns_everything();
    }
}

/// D8: every descriptor of the exporter, and numbers that are none.
#[test]
fn d8_a_forged_descriptor_is_rejected_and_harmless() {
    let (test, memory, shared) = sharing(ELASTIC, 4 * MIB);
    let other = test.allocate(4 * MIB);
    let others = TestAllocator::new(ELASTIC);
    let theirs = others.allocate(4 * MIB);
    let theirs = (others.allocator.share(&theirs).unwrap(), theirs);
    let mut second = Second::start_by("pidfd", "host");
    let handle = shared.handle();
    if !came_in(second.open("first", &handle)) {
        return;
    }
    second.ask("close first").unwrap();
    let numbers = (0..64).chain([descriptor_of(&theirs.0.handle()), 1000, i32::MAX.cast_unsigned()]);
    for number in numbers.filter(|number| *number != descriptor_of(&handle)) {
        let forged = with_descriptor(handle.clone(), number);
        let why = second.open("it", &forged).unwrap_err();
        assert!(why.contains("has ended or has closed"), "{number}: {why}");
    }
    let why = second.open("it", &with_descriptor(handle.clone(), u32::MAX)).unwrap_err();
    assert!(why.contains("was changed on its way"), "{why}");
    second.open("it", &handle).unwrap();
    drop((second, shared, memory, other));
    test.assert_returns_everything();
}

/// D8: withdrawn and gone differ by this transport too.
#[test]
fn d8_a_late_importer_by_pidfd_gets_the_reason() {
    let (test, memory, shared) = sharing(ELASTIC, 4 * MIB);
    let handle = shared.handle();
    let mut second = Second::start_by("pidfd", "host");
    if !came_in(second.open("it", &handle)) {
        return;
    }
    second.ask("close it").unwrap();
    drop(shared);
    let why = second.open("it", &handle).unwrap_err();
    assert!(why.contains("does not share this any more"), "{why}");
    drop(memory);
    test.assert_returns_everything();
    let why = second.open("it", &handle).unwrap_err();
    assert!(why.contains("has ended or has closed"), "{why}");
    let (third, handle) = Second::sharing(ELASTIC, 4);
    third.kill();
    let why = second.open("it", &handle).unwrap_err();
    assert!(why.contains("has ended or has closed"), "{why}");
}

/// D8: what containers with one PID namespace and two network namespaces have. Needs the right to make one.
#[test]
fn d8_another_network_is_reached_by_pidfd_and_not_by_name() {
    let (test, memory, shared) = sharing(ELASTIC, 4 * MIB);
    let (mut either, mut named) = match (Second::start_apart(None), Second::start_apart(Some("name"))) {
        (Ok(either), Ok(named)) => (either, named),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("not tried, as there is no second network namespace: {error}");
            return;
        }
    };
    let why = named.open("it", &shared.handle()).unwrap_err();
    assert!(why.contains("cannot be reached from here"), "{why}");
    if came_in(either.open("it", &shared.handle())) {
        assert_eq!(either.ask("holds it 1").unwrap(), "true");
        assert_eq!(shared.readers(), 1);
        either.kill();
        eventually("it is closed", || shared.readers() == 0);
    }
    drop((shared, memory));
    test.assert_returns_everything();
}

/// D8: needs the right to become another user, which the kernel refuses.
#[test]
fn d8_a_forbidden_pidfd_says_what_to_do() {
    if !is_root() {
        return;
    }
    let (_test, _memory, shared) = sharing(ELASTIC, 4 * MIB);
    let mut second = Second::start_by_as("pidfd", 65_534);
    let why = second.open("it", &shared.handle()).unwrap_err();
    assert_is_refusal(&why);
    assert_eq!(shared.readers(), 0);
}

#[test]
fn d8_root_cannot_open_memory_of_another_user() {
    if !is_root() {
        return;
    }
    let test = TestAllocator::new(ELASTIC);
    let mut theirs = Second::start_as(65_534);
    let handle = from_hex(&theirs.ask(&format!("share {ELASTIC} 4 5")).unwrap());
    drop(test);
    let mut second = Second::start_by("pidfd", "host");
    let why = second.open("it", &handle).unwrap_err();
    let other = why.contains("belongs to another user");
    assert!(other || !came_in(Err(why)));
    assert_eq!(theirs.ask("readers").unwrap(), "0");
}

#[test]
fn an_unknown_transport_is_an_error() {
    let (_test, _memory, shared) = sharing(ELASTIC, 4 * MIB);
    let mut second = Second::start_by("socket", "host");
    let why = second.open("it", &shared.handle()).unwrap_err();
    assert!(why.contains("CACHETTE_SHARE_BY is \"socket\""), "{why}");
    let mut second = Second::start_by("name", "host");
    second.open("it", &shared.handle()).unwrap();
}

/// Sends a message through the pidfd socket of this process, as any client could.
fn send_by_pidfd(outer: BorrowedFd<'_>, bytes: &[u8], with: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    assert!(with.is_empty() || rights.push(SendAncillaryMessage::ScmRights(with)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let bytes = [std::io::IoSlice::new(bytes)];
    rustix::net::sendmsg(outer, &bytes, &mut rights, flags).map(drop)
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("there is room")
}

/// Invalid messages, silent connections, and at last a pidfd socket that is shut down.
#[test]
fn invalid_messages_by_pidfd_delay_no_other() {
    let (test, memory, shared) = sharing(ELASTIC, 4 * MIB);
    let handle = shared.handle();
    let mut second = Second::start_by("pidfd", "host");
    let by_pidfd = came_in(second.open("first", &handle));
    let number = i32::try_from(descriptor_of(&handle)).unwrap();
    // SAFETY: the exporter keeps it open until a client shuts it down, which comes later.
    let outer = unsafe { BorrowedFd::borrow_raw(number) };
    let outer = outer.try_clone_to_owned().unwrap();
    let outer = outer.as_fd();
    let began = Instant::now();
    let file = std::fs::File::open("/dev/null").unwrap();
    let listener = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let mut silent = Vec::new();
    for round in 0..100 {
        let (near, far) = pair();
        let far = far.as_fd();
        let invalid: [(&[u8], &[BorrowedFd<'_>]); 8] = [
            (b"", &[]),
            (b"K", &[]),
            (b"K", &[file.as_fd()]),
            (b"K", &[listener.as_fd()]),
            (b"K", &[far; 2]),
            (b"Knock", &[far]),
            (&[0xff; 100], &[far; 8]),
            (b"K", &[far]),
        ];
        for (bytes, with) in invalid {
            while send_by_pidfd(outer, bytes, with) == Err(Errno::AGAIN) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if round % 2 == 0 {
            rustix::net::send(&near, b"nonsense", SendFlags::NOSIGNAL).unwrap();
        }
        silent.push(near);
        drop(test.allocator.open_shared(&handle).unwrap());
    }
    if by_pidfd {
        second.open("second", &handle).unwrap();
    }
    // To wait for each of them would take a quarter of an hour.
    assert!(began.elapsed() < Duration::from_secs(100));
    rustix::net::shutdown(outer, Shutdown::Write).unwrap();
    drop(test.allocator.open_shared(&handle).unwrap());
    eventually("both ends are closed", || {
        let mut ends = [PollFd::from_borrowed_fd(outer, PollFlags::empty())];
        poll(&mut ends, Some(&Timespec::default())).unwrap();
        ends[0].revents().contains(PollFlags::HUP)
    });
    drop(test.allocator.open_shared(&handle).unwrap());
    drop((silent, second, shared, memory));
    test.assert_returns_everything();
}

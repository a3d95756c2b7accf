//! Memory that is not shared, and importers that are refused.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cachette::hal::{Feature, Sharing};
use cachette::ipc::{IpcError, OpenError};
use cachette::{Error, PointerProblem};
use cachette_hal_host::HostConfig;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::second::Second;
use crate::{DIRECT, ELASTIC, MIB, TestAllocator, sharing};

/// The handle with a correct checksum after a change.
pub(crate) fn sealed(mut handle: Vec<u8>) -> Vec<u8> {
    let end = handle.len() - 4;
    let sum = crc32fast::hash(&handle[..end]);
    handle[end..].copy_from_slice(&sum.to_le_bytes());
    handle
}

/// The error of opening a handle.
fn problem(test: &TestAllocator, handle: &[u8]) -> IpcError {
    match test.allocator.open_shared(handle) {
        Err(Error::Ipc(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_key_is_rejected() {
    for config in [DIRECT, ELASTIC] {
        let (test, _memory, shared) = sharing(config, 4 * MIB);
        let calls = test.device.total_calls();
        for (place, bit) in [(56, 0), (63, 7), (71, 3)] {
            let mut forged = shared.handle();
            forged[place] ^= 1 << bit;
            let why = problem(&test, &sealed(forged));
            let pid = std::process::id();
            assert_eq!(why, IpcError::Open(OpenError::Withdrawn { pid }));
        }
        // The number of another export.
        let mut forged = shared.handle();
        forged[48] ^= 1;
        assert!(matches!(problem(&test, &sealed(forged)), IpcError::Open(OpenError::Withdrawn { .. })));
        assert_eq!(test.device.total_calls(), calls, "the driver was not asked");
        assert_eq!(shared.readers(), 0);
        test.allocator.open_shared(&shared.handle()).expect("the true one opens");
    }
}

/// I1.
#[test]
fn bytes_that_are_no_whole_handle_are_refused() {
    let (test, _memory, shared) = sharing(DIRECT, 4 * MIB);
    let handle = shared.handle();
    for length in 0..handle.len() {
        let why = problem(&test, &handle[..length]);
        assert!(matches!(why, IpcError::Open(OpenError::WrongLength { given, .. }) if given == length));
    }
    let mut changed = handle.clone();
    changed[80] ^= 1;
    assert_eq!(problem(&test, &changed), IpcError::Open(OpenError::Damaged));
    assert_eq!(problem(&test, &[7; 104]), IpcError::Open(OpenError::NotAHandle));
    let mut newer = handle;
    newer[8] = 5;
    let why = test.allocator.open_shared(&newer).unwrap_err().to_string();
    assert!(why.contains("future version 5"), "{why}");
    assert!(why.contains("update the reader"), "{why}");
}

#[test]
fn another_kind_of_device_and_another_device_are_refused() {
    let (test, _memory, shared) = sharing(DIRECT, 4 * MIB);
    let mut nvidia = shared.handle();
    nvidia[10] = b'n';
    assert!(matches!(problem(&test, &sealed(nvidia)), IpcError::OtherVendor { .. }));
    let mut other = shared.handle();
    other[31] ^= 1;
    assert_eq!(problem(&test, &sealed(other)), IpcError::OtherDevice);
}

/// Needs the right to become another user; without it there is no second user to try.
#[test]
fn another_user_gets_nothing() {
    let other_user = 65_534;
    if !is_root() {
        return;
    }
    let (_test, _memory, shared) = sharing(ELASTIC, 4 * MIB);
    let mut second = Second::start_as(other_user);
    let why = second.open("it", &shared.handle()).unwrap_err();
    assert!(why.contains("belongs to another user"), "{why}");
    assert_eq!(shared.readers(), 0);
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    })
}

#[test]
fn what_cannot_leave_the_process_is_not_shared() {
    let none = HostConfig::default().without_sharing(Sharing::FileDescriptor).without_sharing(Sharing::Fabric);
    let test = TestAllocator::on(none, ELASTIC);
    let memory = test.allocate(4 * MIB);
    let error = test.allocator.share(&memory).unwrap_err();
    assert_eq!(error, Error::Ipc(IpcError::PrivateChunks));
    assert!(error.to_string().contains("expandable_segments:False"));
    drop(memory);
    test.assert_returns_everything();

    let test = TestAllocator::on(HostConfig::default().without(Feature::Ipc), DIRECT);
    let memory = test.allocate(4 * MIB);
    let error = test.allocator.share(&memory).unwrap_err();
    assert!(matches!(error, Error::Missing(_)), "{error}");
    drop(memory);
    test.assert_returns_everything();
}

#[test]
fn only_an_allocation_is_shared() {
    let test = TestAllocator::new(DIRECT);
    let nothing = test.allocate(0);
    let error = test.allocator.share(&nothing).unwrap_err();
    assert_eq!(error, Error::Ipc(IpcError::Empty));
    let memory = test.allocate(MIB);
    let address = memory.address();
    let inside = test.allocator.share_raw(address + 512).unwrap_err();
    let why = PointerProblem::Interior { start: address, offset: 512 };
    let address = address + 512;
    assert_eq!(inside, Error::InvalidPointer { address, why });
    let other = TestAllocator::new(DIRECT);
    let foreign = other.allocator.share(&memory).unwrap_err();
    assert!(matches!(foreign, Error::InvalidPointer { .. }));
    let raw = memory.into_raw();
    drop(test.allocator.share_raw(raw).unwrap());
    test.allocator.free_raw(raw).unwrap();
    assert!(test.allocator.share_raw(raw).is_err());
    drop(nothing);
    test.assert_returns_everything();
}

#[test]
fn memory_past_the_cache_is_not_shared() {
    let test = TestAllocator::new("caching:False");
    let memory = test.allocate(MIB);
    let error = test.allocator.share(&memory).unwrap_err();
    assert_eq!(error, Error::Ipc(IpcError::Uncached));
}

/// Clients that send nothing, or nonsense, delay no other client.
#[test]
fn silent_clients_delay_no_other() {
    let (test, memory, shared) = sharing(ELASTIC, 4 * MIB);
    let handle = shared.handle();
    let began = Instant::now();
    let silent: Vec<_> = (0..200)
        .map(|number| {
            let socket = connect(&handle);
            if number % 2 == 1 {
                let nonsense = [0xff; 100];
                rustix::net::send(&socket, &nonsense, SendFlags::NOSIGNAL).unwrap();
            }
            socket
        })
        .collect();
    for _ in 0..20 {
        drop(test.allocator.open_shared(&handle).unwrap());
    }
    // To wait for each of them would take a quarter of an hour.
    assert!(began.elapsed() < Duration::from_secs(100));
    drop((silent, shared, memory));
    test.assert_returns_everything();
}

/// Connects to the process that made a handle.
pub(crate) fn connect(handle: &[u8]) -> OwnedFd {
    let (socket, address) = socket_of(handle);
    rustix::net::connect(&socket, &address).expect("the exporter listens");
    socket
}

/// A socket, and the address that a handle names. No second process of another test inherits it.
pub(crate) fn socket_of(handle: &[u8]) -> (OwnedFd, SocketAddrUnix) {
    let name = format!("cachette-share-{}", crate::bytes::to_hex(&handle[32..48]));
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short");
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    (socket.expect("the system makes sockets"), address)
}

//! What is not shared, and who does not get it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cachette::hal::{Call, ErrorKind, Feature, Sharing};
use cachette::{Error, PointerProblem, ShareProblem};
use cachette_hal_host::HostConfig;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::second::Second;
use crate::{Bed, DIRECT, ELASTIC, MIB};

/// The checksum of a handle, made right again after a change; it keeps accidents out, and is no secret.
pub(crate) fn sealed(mut handle: Vec<u8>) -> Vec<u8> {
    let end = handle.len() - 8;
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = handle[..end].iter().fold(0xcbf2_9ce4_8422_2325, add);
    handle[end..].copy_from_slice(&sum.to_le_bytes());
    handle
}

/// What opening says of a handle.
fn problem(bed: &Bed, handle: &[u8]) -> ShareProblem {
    match bed.allocator.open_shared(handle) {
        Err(Error::Share(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn whoever_guesses_the_key_gets_nothing() {
    for config in [DIRECT, ELASTIC] {
        let bed = Bed::new(config);
        let memory = bed.allocate(4 * MIB);
        let shared = bed.allocator.share(&memory).unwrap();
        let calls = bed.device.total_calls();
        for (place, bit) in [(56, 0), (63, 7), (71, 3)] {
            let mut forged = shared.handle();
            forged[place] ^= 1 << bit;
            let why = problem(&bed, &sealed(forged));
            let pid = std::process::id();
            assert_eq!(why, ShareProblem::Withdrawn { pid });
        }
        // Another offer's number.
        let mut forged = shared.handle();
        forged[48] ^= 1;
        assert!(matches!(problem(&bed, &sealed(forged)), ShareProblem::Withdrawn { .. }));
        assert_eq!(bed.device.total_calls(), calls, "the driver was not asked");
        assert_eq!(shared.readers(), 0);
        bed.allocator.open_shared(&shared.handle()).expect("the true one opens");
    }
}

#[test]
fn the_refusal_of_a_token_says_what_the_driver_said() {
    let bed = Bed::new(DIRECT);
    let memory = bed.allocate(4 * MIB);
    bed.device.fail_next(Call::ExportToken, 1, ErrorKind::InvalidValue);
    let why = bed.allocator.share(&memory).unwrap_err();
    let said = cachette::hal::Error::new(ErrorKind::InvalidValue, Call::ExportToken.name());
    assert!(matches!(&why, Error::Share(ShareProblem::NoToken(found)) if *found == said), "{why:?}");
    assert!(why.to_string().contains(&said.to_string()), "{why}");
    bed.allocator.share(&memory).expect("the next one works");
}

/// I1.
#[test]
fn bytes_that_are_no_whole_handle_are_refused() {
    let bed = Bed::new(DIRECT);
    let memory = bed.allocate(4 * MIB);
    let shared = bed.allocator.share(&memory).unwrap();
    let handle = shared.handle();
    for length in 0..handle.len() {
        let why = problem(&bed, &handle[..length]);
        assert!(matches!(why, ShareProblem::WrongLength { given, .. } if given == length));
    }
    let mut changed = handle.clone();
    changed[80] ^= 1;
    assert_eq!(problem(&bed, &changed), ShareProblem::Damaged);
    assert_eq!(problem(&bed, &[7; 108]), ShareProblem::NotAHandle);
    let mut newer = handle;
    newer[8] = 4;
    let why = bed.allocator.open_shared(&newer).unwrap_err().to_string();
    assert!(why.contains("future version 4"), "{why}");
    assert!(why.contains("update the reader"), "{why}");
}

/// A handle that promises more than there is, sealed by somebody who knows how.
#[test]
fn an_extent_that_is_not_true_is_noticed() {
    let bed = Bed::new(ELASTIC);
    let memory = bed.allocate(4 * MIB);
    let shared = bed.allocator.share(&memory).unwrap();
    for extent in [6 * MIB, 64 * MIB] {
        let mut wider = shared.handle();
        wider[88..96].copy_from_slice(&extent.to_le_bytes());
        assert_eq!(problem(&bed, &sealed(wider)), ShareProblem::Damaged);
    }
    drop((shared, memory));
    bed.assert_returns_everything();
}

#[test]
fn another_kind_of_device_and_another_device_are_refused() {
    let bed = Bed::new(DIRECT);
    let memory = bed.allocate(4 * MIB);
    let shared = bed.allocator.share(&memory).unwrap();
    let mut nvidia = shared.handle();
    nvidia[10] = b'n';
    assert!(matches!(problem(&bed, &sealed(nvidia)), ShareProblem::OtherVendor { .. }));
    let mut other = shared.handle();
    other[31] ^= 1;
    assert_eq!(problem(&bed, &sealed(other)), ShareProblem::OtherDevice);
}

/// Needs the right to become another user; without it there is no second user to try.
#[test]
fn another_user_gets_nothing() {
    let nobody = 65_534;
    if !is_root() {
        return;
    }
    let bed = Bed::new(ELASTIC);
    let memory = bed.allocate(4 * MIB);
    let shared = bed.allocator.share(&memory).unwrap();
    let mut second = Second::start_as(nobody);
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
    let bed = Bed::on(none, ELASTIC);
    let memory = bed.allocate(4 * MIB);
    let error = bed.allocator.share(&memory).unwrap_err();
    assert_eq!(error, Error::Share(ShareProblem::PrivateChunks));
    assert!(error.to_string().contains("expandable_segments:False"));
    drop(memory);
    bed.assert_returns_everything();

    let bed = Bed::on(HostConfig::default().without(Feature::Ipc), DIRECT);
    let memory = bed.allocate(4 * MIB);
    let error = bed.allocator.share(&memory).unwrap_err();
    assert!(matches!(error, Error::Missing(_)), "{error}");
    drop(memory);
    bed.assert_returns_everything();
}

#[test]
fn only_an_allocation_is_shared() {
    let bed = Bed::new(DIRECT);
    let nothing = bed.allocate(0);
    let error = bed.allocator.share(&nothing).unwrap_err();
    assert_eq!(error, Error::Share(ShareProblem::Empty));
    let memory = bed.allocate(MIB);
    let address = memory.address();
    let inside = bed.allocator.share_raw(address + 512).unwrap_err();
    let why = PointerProblem::Interior { start: address, offset: 512 };
    let address = address + 512;
    assert_eq!(inside, Error::InvalidPointer { address, why });
    let other = Bed::new(DIRECT);
    let foreign = other.allocator.share(&memory).unwrap_err();
    assert!(matches!(foreign, Error::InvalidPointer { .. }));
    let raw = memory.into_raw();
    drop(bed.allocator.share_raw(raw).unwrap());
    bed.allocator.free_raw(raw).unwrap();
    assert!(bed.allocator.share_raw(raw).is_err());
    drop(nothing);
    bed.assert_returns_everything();
}

#[test]
fn memory_past_the_cache_is_not_shared() {
    let bed = Bed::new("caching:False");
    let memory = bed.allocate(MIB);
    let error = bed.allocator.share(&memory).unwrap_err();
    assert_eq!(error, Error::Share(ShareProblem::PastCache));
}

/// Processes that connect and say nothing, or nonsense, delay nobody.
#[test]
fn whoever_says_nothing_delays_nobody() {
    let bed = Bed::new(ELASTIC);
    let memory = bed.allocate(4 * MIB);
    let shared = bed.allocator.share(&memory).unwrap();
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
        drop(bed.allocator.open_shared(&handle).unwrap());
    }
    // To wait for each of them would take a quarter of an hour.
    assert!(began.elapsed() < Duration::from_secs(100));
    drop((silent, shared, memory));
    bed.assert_returns_everything();
}

/// Connects to the process that made a handle.
pub(crate) fn connect(handle: &[u8]) -> OwnedFd {
    let (socket, address) = socket_of(handle);
    rustix::net::connect(&socket, &address).expect("somebody listens");
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

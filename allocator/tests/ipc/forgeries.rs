//! Forged handles and answers: none of them leads to memory that is not shared.

use std::os::fd::OwnedFd;
use std::thread;

use cachette::Error;
use cachette::ipc::{IpcError, OpenError};
use rustix::net::{RecvFlags, SendFlags};

use crate::refusals::{sealed, socket_of};
use crate::second::Second;
use crate::{DIRECT, ELASTIC, MIB, sharing};

/// A handle with other numbers for where the memory lies, sealed as the true one is.
fn with_span(handle: &[u8], bytes: u64, offset: u64, extent: u64) -> Vec<u8> {
    let mut forged = handle.to_vec();
    for (place, number) in [(72, bytes), (80, offset), (88, extent)] {
        forged[place..place + 8].copy_from_slice(&number.to_le_bytes());
    }
    sealed(forged)
}

/// The numbers of a true handle.
fn span_of(handle: &[u8]) -> [u64; 3] {
    let number = |place: usize| handle[place..place + 8].try_into().expect("it has that many");
    [72, 80, 88].map(|place| u64::from_le_bytes(number(place)))
}

#[test]
fn a_handle_of_more_than_is_shared_is_refused() {
    for config in [DIRECT, ELASTIC] {
        let (test, memory, shared) = sharing(config, 8 * MIB);
        let handle = shared.handle();
        let [bytes, offset, extent] = span_of(&handle);
        let mut second = Second::start();
        for [bytes, offset, extent] in [
            [2 * bytes, offset, 2 * extent],
            [bytes, offset, extent + 1],
            [bytes + 1, offset, extent + 1],
            [bytes - 1, offset, extent],
            [bytes - 512, offset + 512, extent],
            [4096, 1 << 40, 1 << 41],
            [4096, u64::MAX - 8192, u64::MAX],
            [1, u64::MAX - 1, u64::MAX],
            [u64::MAX, 0, u64::MAX],
        ] {
            let forged = with_span(&handle, bytes, offset, extent);
            let here = test.allocator.open_shared(&forged).unwrap_err();
            assert_eq!(here, Error::Ipc(IpcError::Open(OpenError::Damaged)), "{config}");
            let there = second.open("it", &forged).unwrap_err();
            assert!(there.contains("was changed on its way"), "{config}: {there}");
        }
        second.open("it", &handle).unwrap();
        drop(test.allocator.open_shared(&handle).unwrap());
        drop((second, shared, memory));
        test.assert_returns_everything();
    }
}

/// Answers one question at the name that a handle tells of.
fn answer_once(handle: &[u8], reply: Vec<u8>) -> thread::JoinHandle<OwnedFd> {
    let (socket, address) = socket_of(handle);
    rustix::net::bind(&socket, &address).expect("the name is free");
    rustix::net::listen(&socket, 1).expect("it listens");
    thread::spawn(move || {
        let connection = rustix::net::accept(&socket).expect("the importer connects");
        let mut question = [0_u8; 256];
        let heard = rustix::net::recv(&connection, &mut question, RecvFlags::empty());
        heard.expect("the importer asks");
        rustix::net::send(&connection, &reply, SendFlags::NOSIGNAL).expect("it is heard");
        connection
    })
}

/// A process that says "it is yours, at this address" must not be believed.
#[test]
fn no_address_is_taken_from_a_message() {
    let (test, memory, shared) = sharing(DIRECT, 8 * MIB);
    let handle = shared.handle();
    let place = 0x4141_4141_0000_u64.to_le_bytes();
    for (number, reply) in [
        [&b"L"[..], &place].concat(),
        [&b"L"[..], &handle[72..96]].concat(),
        [&b"L"[..], &handle[72..96], &place].concat(),
    ]
    .into_iter()
    .enumerate()
    {
        let mut forged = handle.clone();
        forged[32 + number] ^= 0xFF;
        let forged = sealed(forged);
        let answering = answer_once(&forged, reply);
        let why = test.allocator.open_shared(&forged).unwrap_err();
        let pid = std::process::id();
        assert_eq!(why, Error::Ipc(IpcError::Open(OpenError::Protocol { pid })));
        drop(answering.join().expect("it has answered"));
    }
    let own = test.allocator.open_shared(&handle).unwrap();
    assert_eq!(own.address(), memory.address());
    drop((own, shared, memory));
    test.assert_returns_everything();
}

/// An exporter that sends chunks of no bytes would never come to an end.
#[test]
fn an_exporter_that_sends_nothing_is_left() {
    let (test, memory, shared) = sharing(ELASTIC, 4 * MIB);
    let mut forged = shared.handle();
    forged[40] ^= 0xFF;
    let forged = sealed(forged);
    let (socket, address) = socket_of(&forged);
    rustix::net::bind(&socket, &address).expect("the name is free");
    rustix::net::listen(&socket, 1).expect("it listens");
    let reply = [&b"C"[..], &u32::MAX.to_le_bytes(), &forged[72..96]].concat();
    let nothing = [&b"F"[..], &[1], &[0; 8 + 64]].concat();
    let answering = thread::spawn(move || {
        let connection = rustix::net::accept(&socket).expect("the importer connects");
        for reply in std::iter::once(&reply).chain(std::iter::repeat(&nothing)) {
            let mut question = [0_u8; 256];
            match rustix::net::recv(&connection, &mut question, RecvFlags::empty()) {
                Ok((_, 0)) | Err(_) => return,
                Ok(_) => drop(rustix::net::send(&connection, reply, SendFlags::NOSIGNAL)),
            }
        }
    });
    let why = test.allocator.open_shared(&forged).unwrap_err();
    let pid = std::process::id();
    assert_eq!(why, Error::Ipc(IpcError::Open(OpenError::Protocol { pid })));
    answering.join().expect("it was left");
    drop((shared, memory));
    test.assert_returns_everything();
}

//! A relay between importer and exporter, which sees the requests and changes the replies.
//!
//! The memory has fabric names, so that messages carry no descriptors and are easily passed on.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, spawn};

use cachette::Error;
use cachette::hal::Sharing;
use cachette::ipc::OpenError;
use cachette_hal_host::HostConfig;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::bytes::{holds, put};
use crate::refusals::{connect, sealed, socket_of};
use crate::{ELASTIC, MIB, TestAllocator, eventually};

/// Chunks of the memory; they need three batches and more.
const CHUNKS: u64 = 40;

fn test() -> TestAllocator {
    let unnamed = HostConfig::default().without_sharing(Sharing::FileDescriptor);
    TestAllocator::on(unnamed, ELASTIC)
}

/// Passes on what is said about a handle. `change` gets the number of every answer, and the answer; after `None` it
/// hangs up. The handle that leads here, and what was asked in the end.
fn between(
    handle: &[u8],
    change: impl Fn(usize, Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
) -> (Vec<u8>, JoinHandle<Vec<Vec<u8>>>) {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let name = u128::from(std::process::id()) << 64 | u128::from(NAMES.fetch_add(1, Relaxed));
    let mut here = handle.to_vec();
    here[32..48].copy_from_slice(&name.to_be_bytes());
    let listener = listen(&here);
    let exporter = connect(handle);
    let passing = spawn(move || {
        let importer = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC);
        let importer = importer.expect("the importer connects");
        let mut asked = Vec::new();
        for number in 0.. {
            let request = receive(&importer);
            if request.is_empty() {
                break;
            }
            send(&exporter, &request);
            asked.push(request);
            let Some(answer) = change(number, receive(&exporter)) else {
                break;
            };
            send(&importer, &answer);
        }
        asked
    });
    (sealed(here), passing)
}

fn listen(handle: &[u8]) -> OwnedFd {
    let (socket, address) = socket_of(handle);
    rustix::net::bind(&socket, &address).expect("the name is new");
    rustix::net::listen(&socket, 1).expect("it listens");
    socket
}

fn receive(socket: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let received = rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty());
    bytes.truncate(received.map_or(0, |(received, _)| received));
    bytes
}

fn send(socket: &OwnedFd, bytes: &[u8]) {
    // Who has gone already is noticed when the next message is waited for.
    let _ = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
}

/// I3: all chunks are asked for in order, some at a time.
#[test]
fn chunks_are_asked_for_in_order_and_never_many_at_once() {
    let test = test();
    let memory = test.allocate(2 * CHUNKS * MIB);
    put(&test.device, memory.address(), memory.bytes(), 7);
    let shared = test.allocator.share(&memory).unwrap();
    let (handle, passing) = between(&shared.handle(), |_, answer| Some(answer));
    let opened = test.allocator.open_shared(&handle).unwrap();
    assert!(holds(&test.device, opened.address(), opened.bytes(), 7));
    drop(opened);
    let asked = passing.join().unwrap();
    assert!(asked[0].starts_with(b"O"));
    let mut expected = 0;
    for next in &asked[1..] {
        let &[b'N', a, b, c, d, most] = next.as_slice() else {
            panic!("{next:?}");
        };
        assert_eq!(u32::from_le_bytes([a, b, c, d]), expected);
        assert!((4..=16).contains(&most), "{most}");
        expected += u32::from(most);
    }
    assert!(u64::from(expected) >= CHUNKS);
    eventually("it is closed", || shared.readers() == 0);
    drop((shared, memory));
    test.assert_returns_everything();
}

/// I4: an answer that comes while chunks are mapped already, and is none.
#[test]
fn an_exporter_that_fails_half_way_leaves_nothing_behind() {
    let pid = std::process::id();
    let too_many = [vec![b'F', 40], vec![0; 40 * 72]].concat();
    let cases: [(Option<&[u8]>, OpenError); 6] = [
        (None, OpenError::Gone { pid }),
        (Some(b"?"), OpenError::Protocol { pid }),
        (Some(b"C\x28\0\0\0"), OpenError::Protocol { pid }),
        (Some(&too_many), OpenError::Protocol { pid }),
        (Some(b"W"), OpenError::Withdrawn { pid }),
        (Some(b"Eit is tired"), OpenError::NotHandedOver { pid, why: "it is tired".to_owned() }),
    ];
    let test = test();
    let memory = test.allocate(2 * CHUNKS * MIB);
    let shared = test.allocator.share(&memory).unwrap();
    let before = test.device.live();
    for (wrong, problem) in cases {
        // The first reply opens the memory, and batches follow.
        for nth in 1..=3 {
            let wrong = wrong.map(<[u8]>::to_vec);
            let (handle, passing) = between(&shared.handle(), move |number, answer| {
                let is_meant = number == nth;
                if is_meant { wrong.clone() } else { Some(answer) }
            });
            let error = test.allocator.open_shared(&handle).unwrap_err();
            assert_eq!(error, Error::Ipc(problem.clone().into()), "answer {nth}");
            assert_eq!(test.device.live(), before, "{problem}, answer {nth}");
            passing.join().unwrap();
        }
    }
    eventually("it is closed", || shared.readers() == 0);
    drop((shared, memory));
    test.assert_returns_everything();
}

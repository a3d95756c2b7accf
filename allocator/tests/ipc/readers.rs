//! How many importers an exporter accepts; and names that others have taken.

use std::os::fd::OwnedFd;

use cachette::Error;
use cachette::ipc::{IpcError, OpenError};
use rustix::net::{RecvFlags, SendFlags};

use crate::bytes::from_hex;
use crate::pidfd::came_in;
use crate::refusals::{connect, is_root};
use crate::second::Second;
use crate::{DIRECT, ELASTIC, TestAllocator, eventually};

/// Opens what a handle tells of, by hand, and keeps it; `None` if it is refused.
fn lease(handle: &[u8]) -> Option<OwnedFd> {
    let socket = connect(handle);
    let open = [&b"O"[..], &handle[48..72], &[0; 16]].concat();
    let mut answer = [0_u8; 256];
    let _ = rustix::net::send(&socket, &open, SendFlags::NOSIGNAL);
    let heard = rustix::net::recv(&socket, &mut answer, RecvFlags::empty());
    let let_in = heard.is_ok_and(|(_, bytes)| bytes > 0 && answer[0] == b'T');
    let_in.then_some(socket)
}

#[test]
fn readers_leave_descriptors_to_the_exporter() {
    let mut second = Second::start_within(64);
    let handle = from_hex(&second.ask(&format!("share {DIRECT} 4 5")).unwrap());
    let leases: Vec<_> = std::iter::from_fn(|| lease(&handle)).take(100).collect();
    assert!((16..64).contains(&leases.len()), "{}", leases.len());
    let used: usize = second.ask("descriptors").unwrap().parse().unwrap();
    assert!(used <= 64 - 8, "{used}");
    let test = TestAllocator::new(DIRECT);
    let full = Error::Ipc(IpcError::Open(OpenError::Full { pid: second.pid() }));
    for _ in 0..10 {
        assert_eq!(test.allocator.open_shared(&handle).unwrap_err(), full);
    }
    assert!(full.to_string().contains("raise its limit of open files"));
    drop(leases);
    eventually("a reader is let in again", || test.allocator.open_shared(&handle).is_ok());
}

/// The kernel drops the descriptor of a message that the exporter has no room for.
#[test]
fn an_exporter_without_descriptors_says_so() {
    for transport in ["name", "pidfd"] {
        let mut exporter = Second::start_within(64);
        let handle = from_hex(&exporter.ask(&format!("share {DIRECT} 4 5")).unwrap());
        let mut importer = Second::start_by(transport, "host");
        if !came_in(importer.open("it", &handle)) {
            continue;
        }
        importer.ask("close it").unwrap();
        let is_full =
            |opened: Result<String, String>| opened.is_err_and(|why| why.contains("raise its limit of open files"));
        eventually("the exporter has no descriptor left", || {
            // Also those of importers whose connection it has closed by now.
            exporter.ask("exhaust").unwrap();
            importer.open("it", &handle).inspect(|_| drop(importer.ask("close it"))).is_err()
        });
        for _ in 0..3 {
            let opened = importer.open("it", &handle);
            assert!(is_full(opened.clone()), "{opened:?}");
        }
        exporter.ask("relax").unwrap();
        importer.open("it", &handle).unwrap();
    }
}

/// Needs the right to become another user; without it there is no second user to try.
#[test]
fn a_name_taken_by_another_user_counts_as_free() {
    if !is_root() {
        return;
    }
    let mut exporter = Second::start();
    let handle = exporter.ask(&format!("share {ELASTIC} 4 5")).unwrap();
    exporter.kill();
    let mut squatter = Second::start_as(65_534);
    squatter.ask(&format!("squat {handle}")).unwrap();
    let test = TestAllocator::new(ELASTIC);
    let why = test.allocator.open_shared(&from_hex(&handle)).unwrap_err();
    assert!(matches!(why, Error::Ipc(IpcError::Open(OpenError::Gone { .. }))), "{why}");
}

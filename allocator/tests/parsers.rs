//! Damaged configurations, handles and messages: no panic, bounded memory, and what is accepted comes back the same.

#![cfg(target_os = "linux")]

#[path = "../src/share/handle.rs"]
mod handle;
#[path = "../src/share/problem.rs"]
#[expect(dead_code, unreachable_pub, reason = "only what reading says is needed")]
mod problem;
#[path = "../src/share/wire.rs"]
#[expect(dead_code, reason = "only what reads and writes is needed")]
mod wire;

use std::os::fd::OwnedFd;

use cachette::{Allocator, Backends, Config};
use cachette_mutation::{Counting, Outcome, Random, Run, corpus, mutate, usage};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use handle::Handle;
use wire::{LONGEST, Refusal, Reply, Request};

#[global_allocator]
static COUNTING: Counting = Counting;

fn folder(name: &str) -> Vec<Vec<u8>> {
    corpus(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")))
}

/// Runs a parser over the mutants of a folder, and bounds what it takes.
fn try_all(name: &str, words: &[&[u8]], mutants: u64, mut try_one: impl FnMut(&[u8]) -> Outcome) {
    let files = folder(name);
    let run = Run { files: &files, words, mutants };
    run.try_all(|mutant| {
        let (outcome, used) = usage(|| try_one(mutant));
        // Every byte may become a word with its text and its place, once in the text and once in a copy of it.
        let most = 1024 * mutant.len() + (64 << 10);
        assert!(used.peak <= most, "{used:?} of {}", mutant.len());
        assert!(used.total <= 8 * most, "{used:?} of {}", mutant.len());
        outcome
    });
}

#[test]
fn configurations_that_were_damaged() {
    let words: [&[u8]; 10] = [
        b"[64:8,>:2]",
        b",",
        b":",
        b"]",
        b"True",
        b"caching:False,",
        b"expandable_segments_reserve_by_class:[a:1]",
        b"1e308",
        b"0.5",
        "\u{3000}é".as_bytes(),
    ];
    try_all("config", &words, 10_000, |mutant| {
        let text = String::from_utf8_lossy(mutant);
        match text.parse::<Config>() {
            Ok(config) => {
                assert_eq!(config.to_string().parse(), Ok(config));
                Outcome::Accepted
            }
            Err(error) => {
                let span = error.span().expect("an error in a text has a place");
                assert!(text.get(span).is_some(), "{error:?}");
                Outcome::Refused
            }
        }
    });
}

/// The bytes with a checksum that is right; it keeps accidents out, and is no secret.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.len().saturating_sub(8);
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = bytes[..end].iter().fold(0xcbf2_9ce4_8422_2325, add);
    [&bytes[..end], &sum.to_le_bytes()].concat()
}

#[test]
fn handles_that_were_damaged() {
    try_all("handle", &[b"cachshar"], 20_000, |mutant| {
        let read = |bytes: &[u8]| {
            let handle = Handle::decode(bytes).ok()?;
            let again = Handle::decode(&handle.encode()).expect("what was written is read");
            assert_eq!(format!("{again:?}"), format!("{handle:?}"));
            let end = handle.span.offset.checked_add(handle.span.bytes);
            assert!(end.is_some_and(|end| end <= handle.span.extent));
            Some(handle)
        };
        if read(mutant).is_some() | read(&sealed(mutant)).is_some() { Outcome::Accepted } else { Outcome::Refused }
    });
}

#[test]
fn questions_of_importers_that_were_damaged() {
    try_all("request", &[b"O", b"N"], 20_000, |mutant| match Request::decode(mutant) {
        Some(request) => {
            assert_eq!(request.encode(), mutant);
            Outcome::Accepted
        }
        None => Outcome::Refused,
    });
}

#[test]
fn answers_of_exporters_that_were_damaged() {
    try_all("reply", &[b"T", b"L", b"C", b"D", b"F", b"E"], 20_000, |mutant| {
        // No message that is longer is received as a whole.
        let mutant = &mutant[..mutant.len().min(LONGEST + 1)];
        let Some(reply) = Reply::decode(mutant) else {
            return Outcome::Refused;
        };
        let again = Reply::decode(&reply.encode()).expect("what was written is read");
        // A text that is not UTF-8 grows when it is read, and may be cut when it is written.
        if !matches!(reply, Reply::Refused(Refusal::Driver(_))) {
            assert_eq!(again, reply);
        }
        Outcome::Accepted
    });
}

/// Connects to the exporter that a handle names.
fn connect(handle: &[u8]) -> OwnedFd {
    let name = u128::from_be_bytes(handle[32..48].try_into().expect("it has that many"));
    let name = format!("cachette-share-{name:032x}");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short");
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("the system makes sockets");
    rustix::net::connect(&socket, &address).expect("the exporter listens");
    socket
}

#[test]
fn an_exporter_that_hears_damaged_questions_serves_on() {
    for config in ["expandable_segments:False", "expandable_segments:True"] {
        let device = Backends::open("host").expect("there is always this device");
        let config = config.parse().expect("it is right");
        let allocator = Allocator::with_config(device, &config);
        let stream = allocator.create_stream().expect("streams are made");
        let memory = allocator.allocate(4 << 20, &stream).expect("there is room");
        let shared = allocator.share(&memory).expect("it can be shared");
        let handle = shared.handle();
        let mut questions = folder("request");
        // One that is let in.
        questions.push([&b"O"[..], &handle[48..72], &[0; 16]].concat());
        let mut random = Random::new(7);
        for _ in 0..300 {
            let socket = connect(&handle);
            for _ in 0..3 {
                let question = mutate(&mut random, &questions, &[b"O", b"N"]);
                // It is closed after the first one that is not understood.
                let _ = rustix::net::send(&socket, &question, SendFlags::NOSIGNAL);
            }
        }
        let imported = allocator.open_shared(&handle).expect("it serves on");
        assert_eq!(imported.bytes(), memory.bytes());
    }
}

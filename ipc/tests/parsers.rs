//! Damaged handles and messages: no panic, bounded memory, and an accepted value encodes to what was read.

use std::os::fd::OwnedFd;

use cachette_ipc::message::{LONGEST, Refusal, Reply, Request};
use cachette_ipc::{
    ChunkHandle, Connection, DeviceTag, Export, ExportKind, ExportedChunk, Exporter, Handle, OpenReply, Span,
};
use cachette_mutation::{Counting, Outcome, Rng, Run, corpus, mutate, usage};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

#[global_allocator]
static COUNTING: Counting = Counting;

fn folder(name: &str) -> Vec<Vec<u8>> {
    corpus(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")))
}

/// Runs a parser over the mutants of a folder, and bounds the memory that it takes.
fn try_all(name: &str, words: &[&[u8]], mut try_one: impl FnMut(&[u8]) -> Outcome) {
    let files = folder(name);
    let run = Run { files: &files, words, mutants: 20_000 };
    run.try_all(|mutant| {
        let (outcome, used) = usage(|| try_one(mutant));
        let most = 1024 * mutant.len() + (64 << 10);
        assert!(used.peak <= most, "{used:?} of {}", mutant.len());
        assert!(used.total <= 8 * most, "{used:?} of {}", mutant.len());
        outcome
    });
}

/// The bytes with a correct checksum.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let fields = &bytes[..bytes.len().saturating_sub(4)];
    [fields, &crc32fast::hash(fields).to_le_bytes()].concat()
}

#[test]
fn damaged_handles() {
    try_all("handle", &[b"cachshar"], |mutant| {
        let read = |bytes: &[u8]| {
            let handle = Handle::decode(bytes).ok()?;
            let again = Handle::decode(&handle.encode()).expect("an encoded handle decodes");
            assert_eq!(format!("{again:?}"), format!("{handle:?}"));
            let end = handle.span.offset.checked_add(handle.span.bytes);
            assert!(end.is_some_and(|end| end <= handle.span.extent));
            Some(handle)
        };
        if read(mutant).is_some() | read(&sealed(mutant)).is_some() { Outcome::Accepted } else { Outcome::Refused }
    });
}

#[test]
fn damaged_requests() {
    try_all("request", &[b"O", b"N"], |mutant| match Request::decode(mutant) {
        Some(request) => {
            assert_eq!(request.encode(), mutant);
            Outcome::Accepted
        }
        None => Outcome::Refused,
    });
}

#[test]
fn damaged_replies() {
    try_all("reply", &[b"T", b"L", b"C", b"D", b"F", b"E"], |mutant| {
        // A longer message is never received as a whole.
        let mutant = &mutant[..mutant.len().min(LONGEST + 1)];
        let Some(reply) = Reply::decode(mutant) else {
            return Outcome::Refused;
        };
        let again = Reply::decode(&reply.encode()).expect("an encoded reply decodes");
        // A text that is not UTF-8 grows when it is decoded, and may be cut when it is encoded.
        if !matches!(reply, Reply::Refused(Refusal::Driver(_))) {
            assert_eq!(again, reply);
        }
        Outcome::Accepted
    });
}

const SPAN: Span = Span { bytes: 4096, offset: 512, extent: 3 * 4096 };

/// An export that hands nothing real over.
#[derive(Debug)]
struct Fake(ExportKind);

impl Export for Fake {
    fn span(&self) -> Span {
        SPAN
    }

    fn kind(&self) -> ExportKind {
        self.0
    }

    fn chunks(&self, first: usize, most: usize) -> Result<Vec<ExportedChunk>, String> {
        let chunk = |_| ExportedChunk { bytes: 4096, handle: ChunkHandle::Fabric([7; 64]) };
        Ok((first..3).take(most).map(chunk).collect())
    }
}

/// Connects to the exporter that a handle names.
fn connect(handle: &Handle) -> OwnedFd {
    let name = format!("cachette-share-{:032x}", u128::from_be_bytes(handle.exporter.socket));
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short");
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("the system makes sockets");
    rustix::net::connect(&socket, &address).expect("the exporter listens");
    socket
}

#[test]
fn an_exporter_that_receives_damaged_requests_keeps_serving() {
    for kind in [ExportKind::Token { token: [5; 64], base: 1 << 21 }, ExportKind::Chunks { count: 3 }] {
        let exporter = Exporter::default();
        let export = exporter.export(Fake(kind)).expect("the thread starts");
        let handle = export.handle(DeviceTag { vendor: b'h', uuid: [0; 16] });
        let mut requests = folder("request");
        // A valid one.
        requests.push(Request::Open { export: handle.export, key: handle.key, process: [0; 16] }.encode());
        let mut random = Rng::with_seed(7);
        for _ in 0..300 {
            let socket = connect(&handle);
            for _ in 0..3 {
                let request = mutate(&mut random, &requests, &[b"O", b"N"]);
                // The exporter closes after the first invalid one.
                let _ = rustix::net::send(&socket, &request, SendFlags::NOSIGNAL);
            }
        }
        let (connection, reply) = Connection::open(&handle).expect("it still serves");
        match reply {
            OpenReply::Local(base) => assert_eq!(base, 1 << 21),
            OpenReply::Chunks(count) => {
                assert_eq!(count, 3);
                let mut batches = connection.batches(count).expect("it still serves");
                let mut bytes = 0;
                while let Some(chunks) = batches.receive().expect("it sends chunks") {
                    bytes += chunks.iter().map(|chunk| chunk.bytes).sum::<u64>();
                }
                assert_eq!(bytes, SPAN.extent);
            }
            OpenReply::Token(_) => panic!("both ends are one process"),
        }
    }
}

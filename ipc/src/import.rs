//! The importer's connection to an exporter.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::error::OpenError;
use crate::export::{ChunkHandle, ExportedChunk};
use crate::fd_table::room_behind;
use crate::handle::{Handle, HandleKind};
use crate::local;
use crate::message::{BatchHandles, Refusal, Reply, Request, Token};
use crate::socket;
use crate::transport::connect;

/// How long the exporter may take for one reply.
const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// The exporter's reply to [`Connection::open`].
#[derive(Clone, Copy, Debug)]
pub enum OpenReply {
    /// The token of the segment.
    Token(Token),
    /// The address of the segment, which this process itself exports.
    Local(u64),
    /// The number of chunks to request with [`Connection::batches`].
    Chunks(u32),
}

/// The connection to an exporter. The exporter keeps the memory while it is open.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    pid: u32,
    detached: bool,
}

impl Connection {
    /// Connects, and opens the memory that the handle names.
    pub fn open(handle: &Handle) -> Result<(Self, OpenReply), OpenError> {
        let pid = handle.exporter.pid;
        let process = local::process_identity();
        let process = process.ok_or_else(|| OpenError::system(&io::Error::from(io::ErrorKind::Other)))?;
        let socket = connect(&handle.exporter, REPLY_LIMIT)?;
        let connection = Self { socket, pid, detached: false };
        connection.send(&Request::Open { export: handle.export, key: handle.key, process })?;
        let (reply, span) = match (connection.receive()?.0, handle.kind) {
            (Reply::Token(token, span), HandleKind::Token) => (OpenReply::Token(token), span),
            (Reply::Local(span), HandleKind::Token) => (OpenReply::Local(connection.base_of(handle)?), span),
            (Reply::Chunks(count, span), HandleKind::Chunks) if count > 0 => (OpenReply::Chunks(count), span),
            _ => return Err(connection.protocol_error()),
        };
        // The checksum of a handle detects accidents; only the exporter detects a forgery.
        if span != handle.span {
            return Err(OpenError::Damaged);
        }
        Ok((connection, reply))
    }

    /// The address of the segment, which this process must export itself.
    fn base_of(&self, handle: &Handle) -> Result<u64, OpenError> {
        let table = local::find(&handle.exporter.socket).ok_or_else(|| self.protocol_error())?;
        table.base_of(handle.export, &handle.key).ok_or(OpenError::Withdrawn { pid: self.pid })
    }

    /// Requests all `count` chunks.
    pub fn batches(&self, count: u32) -> Result<Batches<'_>, OpenError> {
        let most = room_behind(self.socket.as_raw_fd());
        let batches = Batches { connection: self, received: 0, count, most };
        batches.request()?;
        Ok(batches)
    }

    /// Whether the exporter still keeps the memory.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let received = socket::receive(self.socket.as_fd());
        matches!(received, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Makes the drop of this connection close the descriptor without ending the lease.
    ///
    /// For a forked child, whose copy of the connection belongs to its parent.
    pub fn detach(&mut self) {
        self.detached = true;
    }

    /// The exporter does not follow the protocol.
    #[must_use]
    pub const fn protocol_error(&self) -> OpenError {
        OpenError::Protocol { pid: self.pid }
    }

    /// Sends a request. Its reply must be received before the next request.
    fn send(&self, request: &Request) -> Result<(), OpenError> {
        let sent = socket::send(self.socket.as_fd(), &request.encode(), &[]);
        sent.map_err(|error| self.failed(&error))
    }

    fn receive(&self) -> Result<(Reply, Vec<OwnedFd>), OpenError> {
        let received = socket::receive_within(self.socket.as_fd(), REPLY_LIMIT);
        let (bytes, descriptors) = received.map_err(|error| self.failed(&error))?;
        if bytes.is_empty() {
            return Err(OpenError::Gone { pid: self.pid });
        }
        match Reply::decode(&bytes) {
            Some(Reply::Refused(why)) => Err(self.refused(why)),
            Some(reply) => Ok((reply, descriptors)),
            None => Err(self.protocol_error()),
        }
    }

    fn receive_batch(&self, most: u8) -> Result<Vec<ExportedChunk>, OpenError> {
        let (reply, descriptors) = self.receive()?;
        let Reply::Batch { sizes, handles } = reply else { return Err(self.protocol_error()) };
        if sizes.len() > usize::from(most) {
            return Err(self.protocol_error());
        }
        let handles: Vec<ChunkHandle> = match handles {
            BatchHandles::Descriptors if descriptors.len() < sizes.len() => {
                // The kernel drops descriptors that this process has no room for.
                return Err(OpenError::System {
                    what: "take the descriptors of the chunks",
                    why: "this process has too many files open; raise its limit".to_owned(),
                });
            }
            BatchHandles::Descriptors => descriptors.into_iter().map(ChunkHandle::Descriptor).collect(),
            BatchHandles::Fabric(names) => names.into_iter().map(ChunkHandle::Fabric).collect(),
        };
        Ok(sizes.into_iter().zip(handles).map(|(bytes, handle)| ExportedChunk { bytes, handle }).collect())
    }

    fn refused(&self, why: Refusal) -> OpenError {
        let pid = self.pid;
        match why {
            Refusal::Withdrawn => OpenError::Withdrawn { pid },
            Refusal::OtherUser => OpenError::OtherUser { pid },
            Refusal::Full => OpenError::Full { pid },
            Refusal::Driver(why) => OpenError::NotHandedOver { pid, why },
        }
    }

    /// The refusal that the exporter sent before it closed. It refuses a client without waiting for a request.
    fn last_refusal(&self) -> Option<OpenError> {
        let (bytes, _) = socket::receive(self.socket.as_fd()).ok()?;
        match Reply::decode(&bytes)? {
            Reply::Refused(why) => Some(self.refused(why)),
            _ => None,
        }
    }

    fn failed(&self, error: &io::Error) -> OpenError {
        let pid = self.pid;
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => OpenError::NoAnswer { pid },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                // A reset is reported once, before the messages that preceded it.
                let refusal = self.last_refusal().or_else(|| self.last_refusal());
                refusal.unwrap_or(OpenError::Gone { pid })
            }
            _ => OpenError::system(error),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.detached {
            socket::shutdown(self.socket.as_fd());
        }
    }
}

/// All chunks of one import, in order, some at a time.
///
/// It requests the next batch before it returns the last, so that the exporter exports while the importer maps. An
/// importer that stops early must close the connection, because one reply is still on its way.
#[derive(Debug)]
pub struct Batches<'a> {
    connection: &'a Connection,
    /// Chunks received so far.
    received: u32,
    /// All chunks.
    count: u32,
    /// The most chunks of one batch.
    most: u8,
}

impl Batches<'_> {
    /// The next chunks; `None` after the last.
    pub fn receive(&mut self) -> Result<Option<Vec<ExportedChunk>>, OpenError> {
        if self.received >= self.count {
            return Ok(None);
        }
        let chunks = self.connection.receive_batch(self.most)?;
        let received = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        self.received = self.received.saturating_add(received);
        if self.received < self.count {
            self.request()?;
        }
        Ok(Some(chunks))
    }

    fn request(&self) -> Result<(), OpenError> {
        self.connection.send(&Request::Next { first: self.received, most: self.most })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{PollFd, PollFlags};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::handle::{DeviceTag, Key, Span};
    use crate::listener::Listener;

    /// What an importer gets from an exporter that answers its requests with `replies`.
    fn from<T>(replies: Vec<Reply>, import: impl FnOnce(&Handle) -> T) -> (T, u32) {
        let (listener, exporter) = Listener::bind().unwrap();
        let pid = exporter.pid;
        let device = DeviceTag { vendor: b'h', uuid: [0; 16] };
        let (kind, key) = (HandleKind::Chunks, Key::random().unwrap());
        let handle = Handle { kind, device, exporter, export: 1, key, span: SPAN };
        thread::scope(|scope| {
            scope.spawn(|| {
                let named = listener.named.as_fd();
                socket::wait(&mut [PollFd::from_borrowed_fd(named, PollFlags::IN)], Some(REPLY_LIMIT)).unwrap();
                let client = socket::accept(named).unwrap();
                for reply in replies {
                    let (request, _) = socket::receive_within(client.as_fd(), REPLY_LIMIT).unwrap();
                    assert!(Request::decode(&request).is_some());
                    socket::send(client.as_fd(), &reply.encode(), &[]).unwrap();
                }
            });
            (import(&handle), pid)
        })
    }

    const SPAN: Span = Span { bytes: 1, offset: 0, extent: 1 };

    #[test]
    fn an_exporter_that_opens_no_chunks_does_not_follow_the_protocol() {
        let (opened, pid) = from(vec![Reply::Chunks(0, SPAN)], |handle| Connection::open(handle).map(|_| ()));
        assert_eq!(opened, Err(OpenError::Protocol { pid }));
    }

    #[test]
    fn a_batch_has_at_most_the_chunks_that_were_asked_for() {
        for (sent, expected) in [(1, true), (2, true), (3, false)] {
            let (received, pid) = batch_of(sent, BatchHandles::Fabric(vec![[7; 64]; sent]));
            assert_eq!(received, if expected { Ok(sent) } else { Err(OpenError::Protocol { pid }) });
        }
    }

    #[test]
    fn chunks_whose_descriptors_the_kernel_dropped_are_an_error() {
        let (received, _) = batch_of(1, BatchHandles::Descriptors);
        assert!(matches!(received, Err(OpenError::System { .. })), "{received:?}");
    }

    /// How many chunks an importer gets that asks for two at most, or why it gets none.
    fn batch_of(sent: usize, handles: BatchHandles) -> (Result<usize, OpenError>, u32) {
        from(vec![Reply::Chunks(9, SPAN), Reply::Batch { sizes: vec![1; sent], handles }], |handle| {
            let (connection, _) = Connection::open(handle).unwrap();
            connection.send(&Request::Next { first: 0, most: 2 }).unwrap();
            connection.receive_batch(2).map(|chunks| chunks.len())
        })
    }

    #[test]
    fn a_dropped_connection_ends_although_another_process_has_a_copy() {
        for (detached, ends) in [(false, true), (true, false)] {
            let (here, there) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            let copy = here.try_clone().unwrap();
            drop(Connection { socket: here, pid: 1, detached });
            assert_eq!(socket::receive(there.as_fd()).is_ok(), ends, "the copy of a forked child ends nothing");
            drop(copy);
        }
    }

    #[test]
    fn a_failed_call_tells_whether_the_exporter_is_gone_or_slow() {
        let (socket, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let connection = Connection { socket, pid: 1, detached: false };
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock] {
            assert_eq!(connection.failed(&kind.into()), OpenError::NoAnswer { pid: 1 });
        }
        socket::send(there.as_fd(), &Reply::Refused(Refusal::Full).encode(), &[]).unwrap();
        for said in [OpenError::Full { pid: 1 }, OpenError::Gone { pid: 1 }] {
            assert_eq!(connection.failed(&io::ErrorKind::ConnectionReset.into()), said);
        }
    }
}

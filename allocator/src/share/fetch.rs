//! Asking another process for what it offers.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use cachette_hal::IpcToken;

use super::descriptors::room_behind;
use super::handle::{Handle, HandleKind};
use super::here;
use super::link;
use super::problem::ShareProblem;
use super::way::{reach, system};
use super::wire::{Names, Refusal, Reply, Request};
use crate::elastic::chunk_table::Exported;
use crate::fork::ProcessGuard;

/// How long the other process may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A chunk of another process, on its way into this one.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: u64,
    pub(super) name: Exported,
}

/// What the other process says first.
#[derive(Debug)]
pub(super) enum Greeting {
    /// The token of the segment.
    Token(IpcToken),
    /// The address of the segment, which this process has.
    Local(u64),
    /// So many chunks are to be asked for.
    ChunkTable(u32),
}

/// The connection to the process that offers memory. While it is open, that one keeps the memory.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    pid: u32,
    /// The process that asked: its forked children have the connection too, and do not end it.
    origin: ProcessGuard,
}

impl Link {
    /// Connects, and opens what the handle tells of.
    pub(super) fn open(handle: &Handle) -> Result<(Self, Greeting), ShareProblem> {
        let pid = handle.place.pid;
        let process = super::this_process();
        let process = process.ok_or_else(|| system(&io::Error::from(io::ErrorKind::Other)))?;
        let socket = reach(&handle.place, PATIENCE)?;
        let link = Self { socket, pid, origin: ProcessGuard::here() };
        let open = Request::Open { offer: handle.offer, key: handle.key, process };
        link.ask(&open)?;
        let (greeting, span) = match (link.hear()?.0, handle.kind) {
            (Reply::Token(token, span), HandleKind::Direct) => (Greeting::Token(token), span),
            (Reply::Local(span), HandleKind::Direct) => (Greeting::Local(link.base_of(handle)?), span),
            (Reply::ChunkTable(count, span), HandleKind::Elastic) if count > 0 => (Greeting::ChunkTable(count), span),
            _ => return Err(link.misunderstood()),
        };
        // The checksum of a handle keeps accidents out, and the exporter knows what is true.
        if span != handle.span {
            return Err(ShareProblem::Damaged);
        }
        Ok((link, greeting))
    }

    /// The address of the segment, which this process itself must offer.
    fn base_of(&self, handle: &Handle) -> Result<u64, ShareProblem> {
        let desk = here::find(&handle.place.socket).ok_or_else(|| self.misunderstood())?;
        let base = desk.base_of(handle.offer, &handle.key);
        base.ok_or(ShareProblem::Withdrawn { pid: self.pid })
    }

    /// Begins to ask for all chunks, of which there are `count`.
    pub(super) fn batches(&self, count: u32) -> Result<Batches<'_>, ShareProblem> {
        let batches = Batches { link: self, heard: 0, count, most: room_behind(self.socket.as_raw_fd()) };
        batches.ask()?;
        Ok(batches)
    }

    /// The chunks that were asked for, `most` at most.
    fn hear_batch(&self, most: u8) -> Result<Vec<Piece>, ShareProblem> {
        let (reply, descriptors) = self.hear()?;
        let Reply::Batch { sizes, names } = reply else {
            return Err(self.misunderstood());
        };
        if sizes.len() > usize::from(most) {
            return Err(self.misunderstood());
        }
        let names: Vec<Exported> = match names {
            Names::Descriptors if descriptors.len() < sizes.len() => {
                // The kernel leaves out what this process has no room for.
                return Err(ShareProblem::System {
                    what: "take the descriptors of the chunks",
                    why: "this process has too many files open; raise its limit".to_owned(),
                });
            }
            Names::Descriptors => descriptors.into_iter().map(Exported::Descriptor).collect(),
            Names::Fabric(names) => names.into_iter().map(Exported::Fabric).collect(),
        };
        let pieces = sizes.into_iter().zip(names);
        Ok(pieces.map(|(bytes, name)| Piece { bytes, name }).collect())
    }

    /// Whether the other process still answers for the memory.
    pub(super) fn is_alive(&self) -> bool {
        let silent = link::receive(self.socket.as_fd());
        matches!(silent, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Asks one thing. What it is answered has to be heard before the next is asked.
    fn ask(&self, request: &Request) -> Result<(), ShareProblem> {
        let sent = link::send(self.socket.as_fd(), &request.encode(), &[]);
        sent.map_err(|error| self.broken(&error))
    }

    /// Hears the answer, if it is not a refusal.
    fn hear(&self) -> Result<(Reply, Vec<OwnedFd>), ShareProblem> {
        let pid = self.pid;
        let answer = link::receive_within(self.socket.as_fd(), PATIENCE);
        let (bytes, descriptors) = answer.map_err(|error| self.broken(&error))?;
        if bytes.is_empty() {
            return Err(ShareProblem::Gone { pid });
        }
        match Reply::decode(&bytes) {
            Some(Reply::Refused(why)) => Err(self.refused(why)),
            Some(reply) => Ok((reply, descriptors)),
            None => Err(self.misunderstood()),
        }
    }

    /// The other process refused.
    fn refused(&self, why: Refusal) -> ShareProblem {
        let pid = self.pid;
        match why {
            Refusal::Withdrawn => ShareProblem::Withdrawn { pid },
            Refusal::OtherUser => ShareProblem::OtherUser { pid },
            Refusal::Full => ShareProblem::Full { pid },
            Refusal::Driver(why) => ShareProblem::NotHandedOver { pid, why },
        }
    }

    /// Why the other process has closed, if it said so before. It does not wait for a question to say that it is full.
    fn last_words(&self) -> Option<ShareProblem> {
        let (bytes, _) = link::receive(self.socket.as_fd()).ok()?;
        match Reply::decode(&bytes)? {
            Reply::Refused(why) => Some(self.refused(why)),
            _ => None,
        }
    }

    /// The connection failed.
    fn broken(&self, error: &io::Error) -> ShareProblem {
        let pid = self.pid;
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ShareProblem::NoAnswer { pid },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                // A reset comes before what was sent ahead of it, once.
                let words = self.last_words().or_else(|| self.last_words());
                words.unwrap_or(ShareProblem::Gone { pid })
            }
            _ => system(error),
        }
    }

    /// The other process does not speak this language.
    pub(super) const fn misunderstood(&self) -> ShareProblem {
        ShareProblem::Misunderstood { pid: self.pid }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.origin.is_inherited() {
            link::end(self.socket.as_fd());
        }
    }
}

/// All chunks of one opening, some at a time, in order.
///
/// The next ones are asked for before those that came are handed out, so that the other process exports while this one
/// maps. Until all have come one question is under way; whoever stops before closes the link.
#[derive(Debug)]
pub(super) struct Batches<'a> {
    link: &'a Link,
    /// Chunks that came.
    heard: u32,
    /// Chunks in all.
    count: u32,
    /// Chunks that may come at once.
    most: u8,
}

impl Batches<'_> {
    /// The chunks that came next; `None` after the last.
    pub(super) fn hear(&mut self) -> Result<Option<Vec<Piece>>, ShareProblem> {
        if self.heard >= self.count {
            return Ok(None);
        }
        let pieces = self.link.hear_batch(self.most)?;
        let came = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        self.heard = self.heard.saturating_add(came);
        if self.heard < self.count {
            self.ask()?;
        }
        Ok(Some(pieces))
    }

    fn ask(&self) -> Result<(), ShareProblem> {
        let (first, most) = (self.heard, self.most);
        self.link.ask(&Request::Next { first, most })
    }
}

//! Asking another process for what it offers.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cachette_hal::IpcToken;

use super::handle::{Handle, Kind};
use super::link;
use super::problem::ShareProblem;
use super::wire::{Names, Refusal, Reply, Request};
use crate::elastic::chunks::Exported;

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
    /// The address of the segment: it is this process.
    Local(u64),
    /// So many chunks are to be asked for.
    Chunks(u32),
}

/// The connection to the process that offers memory. While it is open, that one keeps the memory.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    pid: u32,
}

impl Link {
    /// Connects, and opens what the handle tells of.
    pub(super) fn open(handle: &Handle) -> Result<(Self, Greeting), ShareProblem> {
        let pid = handle.pid;
        let process = super::this_process();
        let process = process.ok_or_else(|| system(&io::Error::from(io::ErrorKind::Other)))?;
        let socket = match link::connect(&handle.socket, PATIENCE) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(ShareProblem::Gone { pid });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ShareProblem::NoAnswer { pid });
            }
            Err(error) => return Err(system(&error)),
        };
        // The key is told to nobody but a process of the same user.
        if !link::is_same_user(socket.as_fd()).map_err(|error| system(&error))? {
            return Err(ShareProblem::OtherUser { pid });
        }
        let link = Self { socket, pid };
        let open = Request::Open {
            offer: handle.offer,
            key: handle.key,
            process,
        };
        let greeting = match (link.ask(&open)?.0, handle.kind) {
            (Reply::Token(token), Kind::Direct) => Greeting::Token(token),
            (Reply::Local(address), Kind::Direct) => Greeting::Local(address),
            (Reply::Chunks(count), Kind::Elastic) if count > 0 => Greeting::Chunks(count),
            _ => return Err(link.misunderstood()),
        };
        Ok((link, greeting))
    }

    /// The chunks from one on, as many as the other process gives at once.
    pub(super) fn next(&self, first: u32) -> Result<Vec<Piece>, ShareProblem> {
        let (reply, descriptors) = self.ask(&Request::Next(first))?;
        let Reply::Batch { sizes, names } = reply else {
            return Err(self.misunderstood());
        };
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

    /// Asks one thing; the answer, if it is not a refusal.
    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), ShareProblem> {
        let pid = self.pid;
        let gone = |error: &io::Error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ShareProblem::NoAnswer { pid },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                ShareProblem::Gone { pid }
            }
            _ => system(error),
        };
        link::send(self.socket.as_fd(), &request.encode(), &[]).map_err(|error| gone(&error))?;
        let answer = link::receive_within(self.socket.as_fd(), PATIENCE);
        let (bytes, descriptors) = answer.map_err(|error| gone(&error))?;
        if bytes.is_empty() {
            return Err(ShareProblem::Gone { pid });
        }
        match Reply::decode(&bytes) {
            Some(Reply::Refused(why)) => Err(match why {
                Refusal::Withdrawn => ShareProblem::Withdrawn { pid },
                Refusal::OtherUser => ShareProblem::OtherUser { pid },
                Refusal::Driver(why) => ShareProblem::NotHandedOver { pid, why },
            }),
            Some(reply) => Ok((reply, descriptors)),
            None => Err(self.misunderstood()),
        }
    }

    /// The other process does not speak this language.
    pub(super) const fn misunderstood(&self) -> ShareProblem {
        ShareProblem::Misunderstood { pid: self.pid }
    }
}

fn system(error: &io::Error) -> ShareProblem {
    ShareProblem::system("reach the process that shared the memory", error)
}

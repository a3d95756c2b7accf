//! The thread that answers other processes, and learns when they are done.
//!
//! It waits for all of them at once and for none in particular: a process that says nothing delays nobody.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cachette_hal::Device;
use rustix::event::{PollFd, PollFlags};

use super::descriptors::{are_scarce, make_room, spare};
use super::desk::{Desk, Lease};
use super::door::Door;
use super::handle::Key;
use super::link;
use super::offer::Answer;
use super::wire::{Refusal, Reply, Request};

/// How long a connection may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many connections that have not said what they want are kept; the oldest go first.
const STRANGERS: usize = 64;
/// How long to rest when the system has no descriptors or memory left.
const REST: Duration = Duration::from_millis(10);

/// Another process.
#[derive(Debug)]
struct Connection<D: Device> {
    socket: OwnedFd,
    since: Instant,
    /// A descriptor of the batch that it was sent last, while there are chunks to come.
    ///
    /// While a process has no exported chunk open, NVIDIA's driver takes 0.5 ms and more to export one, and a tenth of
    /// that while it has. So one stays open until the next batch is made, and the slow export comes once an opening.
    /// It goes before the lease: who has given up the memory holds nothing of it.
    exported: Option<OwnedFd>,
    /// What it has open.
    lease: Option<Lease<D>>,
}

impl<D: Device> Drop for Connection<D> {
    fn drop(&mut self) {
        link::end(self.socket.as_fd());
    }
}

/// Where others come in.
#[derive(Debug)]
pub(super) struct Entrance {
    /// Has the desk's name.
    pub(super) listener: OwnedFd,
    /// `None` once somebody has broken it.
    pub(super) door: Option<Door>,
}

impl Drop for Entrance {
    fn drop(&mut self) {
        link::end(self.listener.as_fd());
    }
}

/// Answers until the allocator is gone and nobody has anything open.
pub(super) fn serve<D: Device>(desk: &Arc<Desk<D>>, entrance: Entrance) {
    let _end = End(desk);
    // Here, where neither who shares nor, as a rule, who opens has to wait for it.
    make_room(desk.wake());
    let mut entrance = Some(entrance);
    let mut connections: Vec<Connection<D>> = Vec::new();
    let mut settled = false;
    let mut kept = None;
    loop {
        let closed = desk.is_closed();
        if closed {
            entrance = None;
            connections.retain(|connection| connection.lease.is_some());
            if connections.is_empty() {
                return;
            }
        }
        let limit = if closed && !settled { Some(Duration::ZERO) } else { patience_with(&connections) };
        let Ok((came, said)) = listen_to(desk, entrance.as_ref(), &connections, limit) else {
            thread::sleep(REST);
            continue;
        };
        let mut said = said.into_iter();
        connections.retain_mut(|connection| {
            let said = said.next().unwrap_or(false);
            let stays = !said || hear(desk, connection);
            stays && (connection.lease.is_some() || connection.since.elapsed() < PATIENCE)
        });
        if let Some(entrance) = &mut entrance {
            kept = kept.or_else(|| spare(desk.wake()));
            if came.by_name {
                welcome(&mut connections, &mut kept, || link::accept(entrance.listener.as_fd()).map(Some));
            }
            if let Some(door) = entrance.door.as_ref().filter(|_| came.by_door) {
                welcome(&mut connections, &mut kept, || door.answer());
            }
            if came.broke_door {
                entrance.door = None;
            }
        }
        if closed && !settled {
            desk.settle();
            settled = true;
        }
    }
}

/// The end of the thread, however it comes: nobody waits for it then.
struct End<'a, D: Device>(&'a Desk<D>);

impl<D: Device> Drop for End<'_, D> {
    fn drop(&mut self) {
        self.0.settle();
    }
}

/// How long those who have not said what they want may still take; `None` if there are none.
fn patience_with<D: Device>(connections: &[Connection<D>]) -> Option<Duration> {
    let strangers = connections.iter().filter(|known| known.lease.is_none());
    let left = strangers.map(|known| PATIENCE.saturating_sub(known.since.elapsed()));
    left.min()
}

/// Whether somebody new came, and how.
#[derive(Debug)]
struct Came {
    by_name: bool,
    by_door: bool,
    /// An end of the door is closed or shut, which nobody has reason to do. It would be waited for in vain, and for
    /// ever.
    broke_door: bool,
}

/// Waits until something happens: whether somebody new came, and which connections have something to say.
fn listen_to<D: Device>(
    desk: &Desk<D>,
    entrance: Option<&Entrance>,
    connections: &[Connection<D>],
    limit: Option<Duration>,
) -> io::Result<(Came, Vec<bool>)> {
    let mut waits = vec![PollFd::from_borrowed_fd(desk.wake(), PollFlags::IN)];
    let ways: [Option<BorrowedFd<'_>>; 2] = [
        entrance.map(|entrance| entrance.listener.as_fd()),
        entrance.and_then(|entrance| entrance.door.as_ref().map(Door::inner)),
    ];
    let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    let wait_at = |way| PollFd::from_borrowed_fd(way, PollFlags::IN | PollFlags::RDHUP);
    waits.extend(ways.into_iter().flatten().map(wait_at));
    let sockets = connections.iter().map(|connection| &connection.socket);
    waits.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
    link::wait(&mut waits, limit)?;
    let mut happened = waits.iter().map(PollFd::revents);
    if happened.next().is_some_and(|wake| !wake.is_empty()) {
        // It only had to wake the thread.
        let _ = rustix::io::read(desk.wake(), &mut [0_u8; 8]);
    }
    let [name, door] = ways.map(|way| {
        let at = way.and_then(|_| happened.next());
        at.unwrap_or(PollFlags::empty())
    });
    let came = Came { by_name: !name.is_empty(), by_door: !door.is_empty(), broke_door: door.intersects(ended) };
    Ok((came, happened.map(|said| !said.is_empty()).collect()))
}

/// Lets in whoever came and is of this user; `next` gives the next who came, or `None` for what is nobody.
///
/// Where no descriptor is left, the one that is `kept` makes room for saying so.
fn welcome<D: Device>(
    connections: &mut Vec<Connection<D>>,
    kept: &mut Option<OwnedFd>,
    next: impl Fn() -> io::Result<Option<OwnedFd>>,
) {
    for _ in 0..STRANGERS {
        let socket = match next() {
            Ok(Some(socket)) => socket,
            Ok(None) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            // Without one that is kept, nobody can be answered.
            Err(_) if kept.take().is_some() => {
                if let Ok(Some(socket)) = next() {
                    refuse(&socket, Refusal::Full);
                }
                return;
            }
            Err(_) => {
                thread::sleep(REST);
                return;
            }
        };
        if !link::peer(socket.as_fd()).is_ok_and(link::Peer::is_same_user) {
            refuse(&socket, Refusal::OtherUser);
            continue;
        }
        if are_scarce(socket.as_raw_fd()) {
            refuse(&socket, Refusal::Full);
            continue;
        }
        let is_stranger = |known: &Connection<D>| known.lease.is_none();
        if connections.iter().filter(|known| is_stranger(known)).count() >= STRANGERS
            && let Some(oldest) = connections.iter().position(is_stranger)
        {
            connections.remove(oldest);
        }
        connections.push(Connection { socket, since: Instant::now(), exported: None, lease: None });
    }
}

/// Says why somebody is not let in, whether it is heard or not.
fn refuse(socket: &OwnedFd, why: Refusal) {
    let _ = link::send(socket.as_fd(), &Reply::Refused(why).encode(), &[]);
}

/// Hears what a connection has to say, and answers; whether it stays.
fn hear<D: Device>(desk: &Arc<Desk<D>>, connection: &mut Connection<D>) -> bool {
    let request = match link::receive(connection.socket.as_fd()) {
        Ok((bytes, _)) => Request::decode(&bytes),
        Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
    };
    let answer = match request {
        Some(Request::Open { offer, key, process }) if connection.lease.is_none() => {
            open(desk, connection, offer, &key, &process)
        }
        Some(Request::Next { first, most }) => match &connection.lease {
            Some(lease) => lease.offer.batch(first, most),
            None => return false,
        },
        // It has closed, or speaks another language.
        _ => return false,
    };
    let refused = answer.is_err();
    let mut answer = answer.unwrap_or_else(|refusal| Reply::Refused(refusal).into());
    let borrowed: Vec<_> = answer.descriptors.iter().map(AsFd::as_fd).collect();
    // Whoever asks one thing at a time has room for the answer.
    let sent = link::send(connection.socket.as_fd(), &answer.reply.encode(), &borrowed);
    // The one of the batch before goes only now, when this batch is made.
    connection.exported = answer.descriptors.pop().filter(|_| answer.has_more);
    !refused && sent.is_ok()
}

/// Opens an offer for a connection.
fn open<D: Device>(
    desk: &Arc<Desk<D>>,
    connection: &mut Connection<D>,
    offer: u64,
    key: &Key,
    process: &[u8; 16],
) -> Result<Answer, Refusal> {
    let lease = desk.admit(offer, key).ok_or(Refusal::Withdrawn)?;
    let same_process = super::this_process().is_some_and(|own| own == *process);
    let greeting = lease.offer.greeting(same_process);
    connection.lease = Some(lease);
    Ok(greeting.into())
}

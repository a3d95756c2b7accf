//! The thread that serves importers, and learns when they close.
//!
//! It polls all connections at once, so a silent client delays no other.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::export::{Export, ExportTable, Lease};
use crate::fd_table::{are_scarce, grow, spare};
use crate::listener::Listener;
use crate::local::process_identity;
use crate::message::{Refusal, Reply, Request};
use crate::socket;

/// How long a client may take to send its first request.
const PENDING_LIMIT: Duration = Duration::from_secs(5);
/// How many clients without a lease are kept; the oldest are closed first.
const PENDING_CLIENTS: usize = 64;
/// The pause when the system has no descriptors or memory left.
const PAUSE: Duration = Duration::from_millis(10);

/// A connection from an importer; pending until it has a lease.
#[derive(Debug)]
struct Client<E> {
    socket: OwnedFd,
    since: Instant,
    /// A descriptor of the last batch, while more chunks follow.
    ///
    /// NVIDIA's driver takes 0.5 ms and more to export a chunk while the process has no exported chunk open, and a tenth
    /// of that otherwise. So one stays open until the next batch is made. It is dropped before the lease.
    exported: Option<OwnedFd>,
    lease: Option<Lease<E>>,
}

impl<E> Drop for Client<E> {
    fn drop(&mut self) {
        socket::shutdown(self.socket.as_fd());
    }
}

/// Serves until the table is closed and no client has a lease.
pub(crate) fn serve<E: Export>(table: &Arc<ExportTable<E>>, listener: Listener) {
    let _end = SettleOnDrop(table);
    // Here, so that neither the exporting thread nor, usually, an importer waits for it.
    grow(table.wake());
    let mut listener = Some(listener);
    let mut clients: Vec<Client<E>> = Vec::new();
    let mut settled = false;
    // Before the first client, since the program may use up all others until then.
    let mut kept = spare(table.wake());
    loop {
        let closed = table.is_closed();
        if closed {
            listener = None;
            clients.retain(|client| client.lease.is_some());
            if clients.is_empty() {
                return;
            }
        }
        let limit = if closed && !settled { Some(Duration::ZERO) } else { time_left(&clients) };
        let Ok(ready) = poll(table, listener.as_ref(), &clients, limit) else {
            thread::sleep(PAUSE);
            continue;
        };
        let mut readable = ready.clients.into_iter();
        clients.retain_mut(|client| {
            let readable = readable.next().unwrap_or(false);
            let stays = !readable || handle_request(table, client);
            stays && may_stay(client.lease.is_some(), client.since.elapsed())
        });
        if let Some(listener) = &mut listener {
            kept = kept.or_else(|| spare(table.wake()));
            if ready.named {
                accept(&mut clients, &mut kept, || socket::accept(listener.named.as_fd()).map(Some));
            }
            if let Some(pidfd) = listener.pidfd.as_ref().filter(|_| ready.pidfd) {
                // The kernel drops a descriptor that there is no room for, without an error. So room is made first.
                kept = None;
                accept(&mut clients, &mut kept, || pidfd.accept());
                kept = spare(table.wake());
            }
            if ready.pidfd_closed {
                listener.pidfd = None;
            }
        }
        if closed && !settled {
            table.settle();
            settled = true;
        }
    }
}

/// Settles the table when the thread ends, even by a panic, so that no other thread waits for it.
struct SettleOnDrop<'a, E>(&'a ExportTable<E>);

impl<E> Drop for SettleOnDrop<'_, E> {
    fn drop(&mut self) {
        self.0.settle();
    }
}

/// Whether a client may stay connected for so long: without an end if it has a lease, else for a short time.
fn may_stay(has_lease: bool, connected: Duration) -> bool {
    has_lease || connected < PENDING_LIMIT
}

/// The time until the next pending client expires; `None` if there is none.
fn time_left<E>(clients: &[Client<E>]) -> Option<Duration> {
    let pending = clients.iter().filter(|client| client.lease.is_none());
    pending.map(|client| PENDING_LIMIT.saturating_sub(client.since.elapsed())).min()
}

/// Which sockets are ready.
#[derive(Debug)]
struct Ready {
    named: bool,
    pidfd: bool,
    /// A client has shut the pidfd socket down. It would be ready at every poll from now on.
    pidfd_closed: bool,
    /// In the order of the clients.
    clients: Vec<bool>,
}

/// Waits until a socket is ready, or until `limit` has passed.
fn poll<E>(
    table: &ExportTable<E>,
    listener: Option<&Listener>,
    clients: &[Client<E>],
    limit: Option<Duration>,
) -> io::Result<Ready> {
    let listening = listener.map_or([None, None], Listener::sockets);
    let mut polled = vec![PollFd::from_borrowed_fd(table.wake(), PollFlags::IN)];
    let listen = |socket| PollFd::from_borrowed_fd(socket, PollFlags::IN | PollFlags::RDHUP);
    polled.extend(listening.into_iter().flatten().map(listen));
    polled.extend(clients.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)));
    socket::wait(&mut polled, limit)?;
    let mut events = polled.iter().map(PollFd::revents);
    if events.next().is_some_and(|wake| !wake.is_empty()) {
        // Resets the eventfd.
        let _ = rustix::io::read(table.wake(), &mut [0_u8; 8]);
    }
    let [named, pidfd] = listening.map(|socket| socket.and_then(|_| events.next()).unwrap_or(PollFlags::empty()));
    Ok(Ready {
        named: !named.is_empty(),
        pidfd: !pidfd.is_empty(),
        pidfd_closed: pidfd.intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR),
        clients: events.map(|events| !events.is_empty()).collect(),
    })
}

/// Accepts clients of this user; `next` gives the next connection, or `None` for an invalid one.
///
/// If no descriptor is left, closing `kept` makes room to accept one client and refuse it.
fn accept<E>(clients: &mut Vec<Client<E>>, kept: &mut Option<OwnedFd>, next: impl Fn() -> io::Result<Option<OwnedFd>>) {
    for _ in 0..PENDING_CLIENTS {
        let socket = match next() {
            Ok(Some(socket)) => socket,
            Ok(None) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(_) if kept.take().is_some() => {
                if let Ok(Some(socket)) = next() {
                    refuse(&socket, Refusal::Full);
                }
                return;
            }
            Err(_) => {
                thread::sleep(PAUSE);
                return;
            }
        };
        if !socket::peer(socket.as_fd()).is_ok_and(socket::Peer::is_same_user) {
            refuse(&socket, Refusal::OtherUser);
            continue;
        }
        if are_scarce(socket.as_raw_fd()) || spare(socket.as_fd()).is_none() {
            refuse(&socket, Refusal::Full);
            continue;
        }
        let is_pending = |client: &Client<E>| client.lease.is_none();
        if clients.iter().filter(|client| is_pending(client)).count() >= PENDING_CLIENTS
            && let Some(oldest) = clients.iter().position(is_pending)
        {
            clients.remove(oldest);
        }
        clients.push(Client { socket, since: Instant::now(), exported: None, lease: None });
    }
}

/// Tells a client why it is not accepted. The client may be gone already.
fn refuse(socket: &OwnedFd, why: Refusal) {
    let _ = socket::send(socket.as_fd(), &Reply::Refused(why).encode(), &[]);
}

/// Receives a request and replies; returns whether the client stays.
fn handle_request<E: Export>(table: &Arc<ExportTable<E>>, client: &mut Client<E>) -> bool {
    let request = match socket::receive(client.socket.as_fd()) {
        Ok((bytes, _)) => Request::decode(&bytes),
        Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
    };
    let reply = match (request, &client.lease) {
        (Some(Request::Open { export, key, process }), None) => {
            let lease = table.open(export, &key).ok_or(Refusal::Withdrawn);
            lease.map(|lease| {
                let reply = lease.open_reply(process_identity() == Some(process));
                client.lease = Some(lease);
                (reply, Vec::new(), false)
            })
        }
        (Some(Request::Next { first, most }), Some(lease)) => lease.batch(first, most),
        // It has closed, or does not follow the protocol.
        _ => return false,
    };
    let refused = reply.is_err();
    let (reply, mut descriptors, has_more) =
        reply.unwrap_or_else(|refusal| (Reply::Refused(refusal), Vec::new(), false));
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    // A client that waits for each reply always has room for one.
    let sent = socket::send(client.socket.as_fd(), &reply.encode(), &borrowed);
    // Closes the descriptor of the last batch, now that this batch is made.
    client.exported = descriptors.pop().filter(|_| has_more);
    !refused && sent.is_ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::net::UnixStream;

    use rustix::io::Errno;

    use super::*;

    /// A connection, and its other end.
    fn connection() -> (OwnedFd, OwnedFd) {
        let (near, far) = UnixStream::pair().unwrap();
        (near.into(), far.into())
    }

    /// Accepts what `answers` give. Returns the accepted clients, whether the spare descriptor is still there, and the
    /// number of answers that were not asked for.
    fn accept_all(mut answers: Vec<io::Result<Option<OwnedFd>>>) -> (usize, bool, usize) {
        answers.reverse();
        let answers = RefCell::new(answers);
        let (mut clients, mut kept) = (Vec::<Client<()>>::new(), Some(connection().0));
        accept(&mut clients, &mut kept, || answers.borrow_mut().pop().unwrap());
        (clients.len(), kept.is_some(), answers.borrow().len())
    }

    #[test]
    fn an_aborted_connection_keeps_no_other_out() {
        let [one, two] = [(); 2].map(|()| Ok(Some(connection().0)));
        let found = accept_all(vec![Err(Errno::CONNABORTED.into()), Ok(None), one, Err(Errno::WOULDBLOCK.into()), two]);
        assert_eq!(found, (1, true, 1), "it ends where nobody waits");
    }

    #[test]
    fn without_a_descriptor_a_client_is_told_so() {
        let ((near, far), (other, _far)) = (connection(), connection());
        let found = accept_all(vec![Err(Errno::MFILE.into()), Ok(Some(near)), Ok(Some(other))]);
        assert_eq!(found, (0, false, 1), "the spare descriptor made room");
        let (reply, _) = socket::receive(far.as_fd()).unwrap();
        assert_eq!(reply, Reply::Refused(Refusal::Full).encode());
    }

    #[test]
    fn a_client_with_a_lease_stays_and_a_silent_one_goes() {
        assert!(may_stay(true, 1000 * PENDING_LIMIT), "it uses the memory");
        assert!(may_stay(false, PENDING_LIMIT / 2) && !may_stay(false, PENDING_LIMIT));
    }

    /// A client that connected now.
    fn client(socket: OwnedFd) -> Client<()> {
        Client { socket, since: Instant::now(), exported: None, lease: None }
    }

    #[test]
    fn only_clients_without_a_lease_limit_the_wait() {
        assert_eq!(time_left::<()>(&[]), None);
        let left = time_left(&[client(connection().0)]).expect("it must send a request");
        assert!(left > PENDING_LIMIT / 2 && left <= PENDING_LIMIT, "{left:?}");
    }

    #[test]
    fn an_importer_learns_the_end_although_a_forked_child_has_the_connection() {
        let (near, far) = connection();
        let _of_child = near.try_clone().unwrap();
        drop(client(near));
        assert_eq!(socket::receive(far.as_fd()).unwrap().0, []);
    }

    #[test]
    fn the_oldest_of_too_many_silent_clients_is_closed() {
        let (mut clients, mut kept) = (Vec::<Client<()>>::new(), None);
        let (sockets, _far): (Vec<_>, Vec<_>) = (0..=PENDING_CLIENTS).map(|_| connection()).unzip();
        let numbers: Vec<_> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        for socket in sockets {
            let next = RefCell::new(Some(socket));
            accept(&mut clients, &mut kept, || next.take().map(Some).ok_or(Errno::WOULDBLOCK.into()));
        }
        let left: Vec<_> = clients.iter().map(|client| client.socket.as_raw_fd()).collect();
        assert_eq!(left, numbers[1..]);
    }
}

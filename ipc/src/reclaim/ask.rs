//! Questions to several processes at once, in bounded time.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::reclaim::answer::Registration;
use crate::reclaim::datagram;
use crate::reclaim::message::{Body, Figures, Give, Holder, Message};
use crate::reclaim::place::{Device, Named, NeighbourAddress, Place};
use crate::socket::{self, random};

/// For so long an asker waits for a process that neither answers nor frees memory.
pub const WINDOW: Duration = Duration::from_millis(50);

/// How long releases that say so may take in all before the first memory is free, if the asker is patient.
///
/// A release waits for queued work, and an eviction also allocates host memory. Only a request that would fail is patient.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions without an answer at one time. The kernel keeps as few as ten datagrams for a socket.
const OPEN: usize = 8;
/// After so long without an answer, further questions are sent nevertheless.
const SILENCE: Duration = Duration::from_millis(5);
/// The datagrams that are read before the time is looked at again.
const BURST: usize = 64;
/// When a process that serves another asker is asked again: the first time, and the longest. Most releases end soon.
const BUSY: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(10)];
/// How often free memory and full queues are looked at again.
const PAUSE: Duration = Duration::from_millis(1);

/// What has happened to the free memory of the device since the asker last looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gained {
    /// There is as much as the asker needs.
    Enough,
    /// There is more than ever before.
    More,
    /// There is not more.
    Nothing,
}

/// Asks other processes.
#[derive(Debug)]
pub struct Asker {
    named: Named,
    place: Place,
    patience: Duration,
    datagrams: u64,
}

impl Asker {
    /// An asker with a socket, which closes with it.
    pub fn new(place: &Place) -> io::Result<Self> {
        Ok(Self { named: place.bind_asker()?, place: place.clone(), patience: PATIENCE, datagrams: 0 })
    }

    /// The same with another patience.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The processes that answer for a device, or for any, without the own registration.
    pub fn peers(&self, device: Option<&Device>, own: Option<&Registration>) -> io::Result<Vec<NeighbourAddress>> {
        let mut peers = self.place.peers(device)?;
        let own = own.and_then(Registration::name);
        peers.retain(|peer| Some(peer.name.as_str()) != own);
        Ok(peers)
    }

    /// The datagrams that were sent so far.
    #[must_use]
    pub const fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// The figures of all processes that answer within one [`WINDOW`], in the order of `peers`.
    pub fn figures(&mut self, peers: &[NeighbourAddress]) -> io::Result<Vec<Option<Figures>>> {
        let first = u64::from_le_bytes(random()?);
        let mut figures = vec![None; peers.len()];
        let (mut unsent, mut missing): (VecDeque<usize>, usize) = ((0..peers.len()).collect(), peers.len());
        let (end, mut credit, mut heard, mut is_late) = (Instant::now() + WINDOW, OPEN, Instant::now(), false);
        while missing > 0 && !is_late {
            // What has arrived is read once more, since this thread may have slept.
            is_late = Instant::now() >= end;
            if heard.elapsed() >= SILENCE {
                (credit, heard) = (OPEN, Instant::now());
            }
            let mut full = 0;
            while credit > 0
                && full < unsent.len()
                && let Some(nth) = unsent.pop_front()
            {
                match self.send(&peers[nth], first.wrapping_add(nth as u64), Body::HowAreYou) {
                    Ok(()) => credit -= 1,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        unsent.push_back(nth);
                        full += 1;
                    }
                    // It has ended since it was listed.
                    Err(_) => missing -= 1,
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            self.wait(if unsent.is_empty() { left } else { left.min(PAUSE) })?;
            for message in self.receive()? {
                let nth = usize::try_from(message.request.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let (Body::Figures(answer), Some(place @ None)) = (message.body, figures.get_mut(nth)) {
                    *place = Some(*answer);
                    (missing, credit, heard) = (missing - 1, credit + 1, Instant::now());
                }
            }
        }
        Ok(figures)
    }

    /// Asks a process for memory, and waits while it comes. Returns what the process says it has released.
    ///
    /// `gained` looks at the device, since the word of the process does not count. The wait ends with enough memory, with
    /// the answer, or one [`WINDOW`] after the last growth. If the asker is `patient`, releases in progress have longer: all
    /// together at most five seconds.
    pub fn give(
        &mut self,
        peer: &NeighbourAddress,
        give: Give,
        patient: bool,
        mut gained: impl FnMut() -> Gained,
    ) -> io::Result<u64> {
        let request = u64::from_le_bytes(random()?);
        let (mut end, mut due, mut last_look) = (Instant::now() + WINDOW, Some(Instant::now()), None);
        let mut pause = BUSY[0];
        while last_look != Some(end) {
            last_look = (Instant::now() >= end).then_some(end);
            if last_look.is_none() && due.is_some_and(|due| Instant::now() >= due) {
                match self.send(peer, request, Body::Give(give)) {
                    Ok(()) => due = None,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => due = Some(Instant::now() + PAUSE),
                    // It has ended since it was asked for its figures.
                    Err(_) => return Ok(0),
                }
            }
            let left = due.map_or(PAUSE, |due| due.saturating_duration_since(Instant::now()));
            self.wait(left.min(PAUSE))?;
            for message in self.receive()? {
                match message.body {
                    _ if message.request != request => continue,
                    Body::Given(bytes) => return Ok(bytes),
                    Body::Busy => {
                        due = Some(Instant::now() + pause);
                        pause = (2 * pause).min(BUSY[1]);
                    }
                    Body::Working => {}
                    _ => continue,
                }
                if patient {
                    let later = (Instant::now() + WINDOW).saturating_duration_since(end).min(self.patience);
                    self.patience -= later;
                    end += later;
                }
            }
            match gained() {
                Gained::Enough => return Ok(0),
                Gained::More => end = end.max(Instant::now() + WINDOW),
                Gained::Nothing => {}
            }
        }
        Ok(0)
    }

    /// The labels and pools that hold the memory of a process, the largest first; `None` without an answer in time.
    pub fn holders(&mut self, peer: &NeighbourAddress) -> io::Result<Option<Vec<Holder>>> {
        self.question(peer, Body::WhoHolds, |body| match body {
            Body::Holders(holders) => Some(holders),
            _ => None,
        })
    }

    /// The file of a snapshot that a process writes; `None` if it fails or does not answer in time.
    pub fn snapshot(&mut self, peer: &NeighbourAddress) -> io::Result<Option<String>> {
        let answer = self.question(peer, Body::WriteSnapshot, |body| match body {
            Body::Written(path) => Some(path),
            _ => None,
        })?;
        Ok(answer.filter(|path| !path.is_empty()))
    }

    /// Asks one process, and waits for its answer while it says that it works, but no longer than five seconds.
    fn question<T>(
        &mut self,
        peer: &NeighbourAddress,
        question: Body,
        read: impl Fn(Body) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let request = u64::from_le_bytes(random()?);
        if self.send(peer, request, question).is_err() {
            return Ok(None);
        }
        let last = Instant::now() + PATIENCE;
        let (mut end, mut last_look) = (Instant::now() + WINDOW, None);
        while last_look != Some(end) && Instant::now() < last {
            last_look = (Instant::now() >= end).then_some(end);
            self.wait(PAUSE)?;
            for Message { body, .. } in self.receive()?.into_iter().filter(|message| message.request == request) {
                match body {
                    Body::Working => end = Instant::now() + WINDOW,
                    Body::Busy => return Ok(None),
                    body => return Ok(read(body)),
                }
            }
        }
        Ok(None)
    }

    fn send(&mut self, peer: &NeighbourAddress, request: u64, body: Body) -> io::Result<()> {
        datagram::send(self.named.socket.as_fd(), &peer.address, &Message { request, body })?;
        self.datagrams += 1;
        Ok(())
    }

    /// The messages of this user that have arrived, at most [`BURST`] datagrams of any sender.
    fn receive(&self) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        for _ in 0..BURST {
            match datagram::receive(self.named.socket.as_fd()) {
                Ok(received) => messages.extend(received.map(|(message, _)| message)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(messages)
    }

    fn wait(&self, limit: Duration) -> io::Result<()> {
        socket::wait(&mut [PollFd::new(&self.named.socket, PollFlags::IN)], Some(limit))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::reclaim::datagram::Address;

    /// Answers that were not asked for, and then those that were.
    #[test]
    fn answers_with_an_unknown_request_number_are_dropped() {
        let name = format!("cachette-test-numbers-{}", std::process::id());
        let address = Address::named(name.as_bytes()).unwrap();
        let socket = datagram::bind(&address).unwrap();
        let peer = NeighbourAddress { device: [0; 16], pid: 1, name, address };
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2 {
                    socket::wait(&mut [PollFd::new(&socket, PollFlags::IN)], Some(10 * WINDOW)).unwrap();
                    // A test that has failed asks no further question.
                    let Ok(Some((question, asker))) = datagram::receive(socket.as_fd()) else { return };
                    let answer = |ahead: u64, bytes| {
                        let figures = Figures { idle: bytes, ..Figures::default() };
                        let body = match question.body {
                            Body::HowAreYou => Body::Figures(Box::new(figures)),
                            _ => Body::Given(bytes),
                        };
                        let message = Message { request: question.request.wrapping_add(ahead), body };
                        datagram::send(socket.as_fd(), &asker, &message).unwrap();
                    };
                    (1..5).for_each(|ahead| answer(ahead, 7));
                    answer(0, 42);
                }
            });
            let mut asker = Asker::new(&Place::Namespace).unwrap();
            let figures = asker.figures(std::slice::from_ref(&peer)).unwrap();
            assert_eq!(figures[0].as_ref().map(|figures| figures.idle), Some(42));
            assert_eq!(asker.give(&peer, Give::default(), true, || Gained::Nothing).unwrap(), 42);
            assert_eq!(asker.datagrams(), 2);
        });
    }
}

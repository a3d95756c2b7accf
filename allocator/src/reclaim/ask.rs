//! Whom a request asks for memory, in which order, and how long it waits.
//!
//! 1. All others are asked for their figures, at once, in one window of 50 ms that ends when all have answered.
//! 2. Who holds idle memory is asked to release as much as the request lacks: the furthest above its share first, and only
//!    as many as needed. Who has itself received memory within the last second is asked only [at the end](Reclaim::last).
//! 3. A release that takes longer than a window, since it waits for queued work or copies, is waited for at the end, before
//!    the request fails: for at most some seconds.
//! 4. What counts is the free memory of the device, whatever the others say. See [`Asker::give`] for how long it is
//!    waited for.
//! 5. A process whose need rises asks for as much again as it has just received, so it asks a few times and not for every
//!    request.
//! 6. A request that may wait leaves the others a part of their idle memory until its time is over. Two processes whose
//!    peaks meet would otherwise wait for each other: the first one's steps need that memory again.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use cachette_hal::Device;
use cachette_ipc::reclaim::{Asker, Figures, Gained, Give, NeighbourAddress, Place};

use crate::allocator::allocator_state::AllocatorState;
use crate::evict::Priority;
use crate::out_of_memory::NeighbourFigures;
use crate::reclaim::state::{KEPT, identity};

/// Drivers keep a part of the memory that they call free. A request that fails beside so much more is not short, and neither
/// is one beside [`AHEAD_PART`] of a large device.
const WITHHELD: u64 = 1 << 30;
/// A request that is refused beside enough free memory needs at least so much more, and twice as much in each round.
const MARGIN: u64 = 32 << 20;
/// At most this part of the device is asked for ahead of the need.
const AHEAD_PART: u64 = 16;
/// The part of its memory in use that a process keeps idle while others can wait.
const SPARED_PART: u64 = 32;
/// Smaller growth of the free memory is no reason to wait longer.
const GROWTH: u64 = 2 << 20;
/// The most times that one request asks, in case others use the memory that it gets.
const ROUNDS: u32 = 8;
/// How long the end of a process with much memory may take.
const ENDING: Duration = Duration::from_secs(5);
/// How often a waiting request looks at the free memory, and how often it tries everything again.
const LOOK: Duration = Duration::from_millis(5);
const AGAIN: Duration = Duration::from_millis(100);

/// Which memory of the others a request asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Idle memory, but of those that received some just now.
    Idle,
    /// All idle memory, and evictable pools too if `evict` is set.
    All { evict: bool },
}

/// One request that asks other processes for memory.
pub(crate) struct Reclaim<'a, D: Device> {
    inner: &'a AllocatorState<D>,
    bytes: u64,
    /// The priority of the request's pool. Evicted pools of others have a lower one.
    below: Option<Priority>,
    rounds: Cell<u32>,
    /// The end of the wait for processes that end, once it has begun.
    ends: Cell<Option<Instant>>,
    /// The end of the wait, once it has begun.
    until: Cell<Option<Instant>>,
    has_retried: Cell<bool>,
    /// The figures of the last round.
    seen: RefCell<Vec<NeighbourFigures>>,
    /// The idle bytes that each process had when it answered last, by the name of its socket.
    claims: RefCell<HashMap<String, u64>>,
}

impl<'a, D: Device> Reclaim<'a, D> {
    /// A request for `bytes` of a pool with this priority; without one it is above all evictable pools.
    ///
    /// The thread that uses it holds no lock of the allocator.
    pub(crate) fn new(inner: &'a AllocatorState<D>, bytes: u64, below: Option<Priority>) -> Self {
        let (rounds, ends, until, has_retried, seen, claims) = Default::default();
        Self { inner, bytes, below, rounds, ends, until, has_retried, seen, claims }
    }

    /// Asks for idle memory. Returns whether the device has enough now.
    pub(crate) fn idle(&self) -> bool {
        self.round(Part::Idle)
    }

    /// Asks for all that others may release before the request fails. Returns whether the device has enough now.
    pub(crate) fn last(&self, evict: bool) -> bool {
        self.round(Part::All { evict }) || self.wait_for_ends() || (self.joined().is_some() && self.is_free_now())
    }

    /// Returns `true` once if the device has enough: others may have freed memory since the request last tried.
    fn is_free_now(&self) -> bool {
        self.is_within_limit() && self.free() >= self.bytes && !self.has_retried.replace(true)
    }

    /// Waits while processes that hold enough idle memory are ending, for at most some seconds in all.
    ///
    /// The driver of a process that ends serves it no more, but its threads answer until the system stops them. Its memory
    /// is free a moment later.
    fn wait_for_ends(&self) -> bool {
        let is_claimed = self.claims.borrow().values().any(|idle| *idle > 0);
        let Some(goal) = is_claimed.then(|| self.goal()).flatten() else { return false };
        let end = self.ends.get().unwrap_or_else(|| Instant::now() + ENDING);
        self.inner.shared.callbacks.waiting(|| {
            while Instant::now() < end && self.ending_bytes().saturating_add(self.free()) >= goal {
                self.ends.set(Some(end));
                if self.is_free_within(AGAIN, goal) {
                    return true;
                }
            }
            self.free() >= goal
        })
    }

    /// The idle bytes of processes that are ending, or no longer answer.
    fn ending_bytes(&self) -> u64 {
        let mut claims = self.claims.borrow().clone();
        let Some(device) = self.joined() else { return 0 };
        let Ok((_, answered)) = self.ask_all(&device) else { return 0 };
        for (peer, _) in answered.iter().filter(|(_, of)| !of.is_ending) {
            claims.remove(peer.name());
        }
        claims.into_values().fold(0, u64::saturating_add)
    }

    /// Waits for a while, if the configuration lets the request wait for others. Returns `false` at the end of that time.
    pub(crate) fn wait(&self) -> bool {
        let Some(seconds) = self.inner.shared.settings.config().reclaim_wait() else { return false };
        let Some(goal) = self.goal() else { return self.is_free_now() };
        let until = self.until.get().unwrap_or_else(|| Instant::now() + Duration::from_secs_f64(seconds));
        self.until.set(Some(until));
        self.rounds.set(0);
        self.has_retried.set(false);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // Memory of this process may have become free, too. The steps before this one look for that.
        self.inner.shared.callbacks.waiting(|| self.is_free_within(left.min(AGAIN), goal));
        true
    }

    /// Whether the request waits before it fails, and its time is not over.
    fn may_wait_longer(&self) -> bool {
        let waits = self.inner.shared.settings.config().reclaim_wait().is_some();
        waits && self.until.get().is_none_or(|until| Instant::now() < until)
    }

    /// Waits until the device has enough memory, or the time is over.
    fn is_free_within(&self, time: Duration, goal: u64) -> bool {
        let end = Instant::now() + time;
        while self.free() < goal && Instant::now() < end {
            thread::sleep(LOOK);
        }
        self.free() >= goal
    }

    /// The processes that answered in the last round.
    pub(crate) fn neighbours(&self) -> Vec<NeighbourFigures> {
        self.seen.borrow().clone()
    }

    fn free(&self) -> u64 {
        self.inner.shared.free_memory().unwrap_or(0)
    }

    /// The free memory that the request needs; `None` if the device is not what it lacks.
    fn goal(&self) -> Option<u64> {
        let (free, total) = (self.free(), self.inner.shared.device.info().total_memory);
        let more = self.bytes.max(MARGIN << self.rounds.get());
        let goal = if free < self.bytes { self.bytes } else { free.saturating_add(more) };
        let is_short = free < self.bytes.saturating_add(WITHHELD.max(total / AHEAD_PART));
        (is_short && self.is_within_limit() && self.bytes <= total).then_some(goal)
    }

    fn is_within_limit(&self) -> bool {
        self.inner.shared.room(self.bytes) >= self.bytes
    }

    /// The device, if other processes may be asked for its memory.
    fn joined(&self) -> Option<[u8; 16]> {
        let reclaim = &self.inner.reclaim;
        let joined = reclaim.registration.lock().is_some() && reclaim.is_on(&self.inner.shared.settings.config());
        identity(self.inner.shared.device.info()).filter(|_| joined)
    }

    fn round(&self, part: Part) -> bool {
        let Some(device) = self.joined().filter(|_| self.rounds.get() < ROUNDS) else { return false };
        if self.is_free_now() {
            return true;
        }
        let Some(goal) = self.goal() else { return false };
        self.rounds.set(self.rounds.get() + 1);
        let before = self.free();
        if let Err(error) = self.inner.shared.callbacks.waiting(|| self.ask(&device, goal, part)) {
            self.inner.tell_alone(error.kind());
        }
        let after = self.free();
        if after > before {
            self.inner.shared.totals.reclaimed.fetch_add(after - before, Relaxed);
            self.inner.reclaim.note_received(after - before);
        }
        after >= goal
    }

    /// The figures of all others that answer.
    fn ask_all(&self, device: &[u8; 16]) -> io::Result<(Asker, Vec<(NeighbourAddress, Figures)>)> {
        let mut asker = Asker::new(&Place::of_environment())?;
        let peers = asker.peers(Some(device), self.inner.reclaim.registration.lock().as_ref())?;
        let figures = asker.figures(&peers)?;
        Ok((asker, peers.into_iter().zip(figures).filter_map(|(peer, of)| Some((peer, of?))).collect()))
    }

    fn ask(&self, device: &[u8; 16], goal: u64, part: Part) -> io::Result<()> {
        let (mut asker, mut answered) = self.ask_all(device)?;
        self.inner.shared.totals.reclaims.fetch_add(u64::from(asker.datagrams() > 0), Relaxed);
        self.note(&answered);
        answered.sort_by_key(|(_, figures)| order(figures));
        let patient = part != Part::Idle;
        let waits = self.may_wait_longer();
        for (_, of) in answered.iter_mut().filter(|_| waits) {
            of.idle = of.idle.saturating_sub(of.allocated / SPARED_PART);
        }
        let has_idle = |of: &Figures| of.idle > 0 || (patient && !waits && of.is_releasing);
        let idle = answered.iter().filter(|(_, of)| has_idle(of) && (patient || !is_recent(of)));
        self.ask_to_give(&mut asker, goal, (false, patient), idle)?;
        if part == (Part::All { evict: true }) {
            let evictable =
                answered.iter().filter(|(_, of)| of.evictable > 0 && (of.share.is_none() || of.above_share() > 0));
            self.ask_to_give(&mut asker, goal, (true, patient), evictable)?;
        }
        Ok(())
    }

    /// Asks one after the other for what is still missing.
    fn ask_to_give<'b>(
        &self,
        asker: &mut Asker,
        goal: u64,
        (evict, patient): (bool, bool),
        peers: impl Iterator<Item = &'b (NeighbourAddress, Figures)>,
    ) -> io::Result<()> {
        let below = self.below.map(|Priority(priority)| priority);
        let ahead = self.inner.reclaim.received_lately().min(self.inner.shared.device.info().total_memory / AHEAD_PART);
        for (peer, of) in peers {
            let free = self.free();
            if free >= goal {
                break;
            }
            let mut highest = free;
            let gained = || match self.free() {
                free if free >= goal => Gained::Enough,
                free if free >= highest.saturating_add(GROWTH) => {
                    highest = free;
                    Gained::More
                }
                _ => Gained::Nothing,
            };
            // What is evicted is copied, so no more than is needed.
            let needed = goal - free;
            let bytes = if evict || of.idle == 0 { needed } else { ahead.max(needed).min(of.idle) };
            asker.give(peer, Give { bytes, evict, below }, patient, gained)?;
        }
        Ok(())
    }

    fn note(&self, answered: &[(NeighbourAddress, Figures)]) {
        let figures = answered.iter().map(|(_, of)| NeighbourFigures {
            pid: of.pid,
            program: of.program.clone(),
            reserved: of.reserved,
            idle: of.idle,
        });
        *self.seen.borrow_mut() = figures.collect();
        self.claims.borrow_mut().extend(answered.iter().map(|(peer, of)| (peer.name().to_owned(), of.idle)));
    }
}

fn is_recent(figures: &Figures) -> bool {
    figures.received_ago.is_some_and(|ago| ago < KEPT)
}

/// Who is asked first: not those that received memory just now, and then the furthest above its share.
fn order(figures: &Figures) -> (bool, Reverse<u64>, Reverse<u64>) {
    (is_recent(figures), Reverse(figures.above_share()), Reverse(figures.idle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(reserved: u64, idle: u64, share: Option<u64>, received_ago: Option<u64>) -> Figures {
        let mut figures = Figures::default();
        (figures.reserved, figures.idle, figures.share, figures.received_ago) = (reserved, idle, share, received_ago);
        figures
    }

    #[test]
    fn the_furthest_above_its_share_is_first_and_who_just_received_is_last() {
        let mut all = [
            figures(90, 90, None, Some(KEPT - 1)),
            figures(80, 10, Some(70), None),
            figures(80, 10, Some(20), None),
            figures(80, 30, None, Some(KEPT)),
            figures(80, 40, Some(100), None),
        ];
        all.sort_by_key(order);
        let order: Vec<_> = all.iter().map(Figures::above_share).collect();
        assert_eq!(order, [60, 30, 10, 0, 90]);
    }
}

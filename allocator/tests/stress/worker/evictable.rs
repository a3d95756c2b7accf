//! Steps with a pool that requests of all workers may evict. It is used only under a guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cachette::evict::{Priority, Resident};
use cachette::{Error, Pool, PoolOptions};

use crate::fixture::{Fixture, Held};

use super::Worker;
use super::growable::Growing;

/// The evictable pool of one worker.
#[derive(Debug)]
pub(super) struct Evictable {
    /// A guard that lives for several steps. It ends before the pool.
    guard: Option<Resident>,
    held: Vec<Held>,
    pub(super) growing: Option<Growing>,
    pool: Pool,
    /// How often its contents had to be written again, and how often they have been.
    reloads: Arc<AtomicU64>,
    reloaded: u64,
    /// Whether the next reload fails.
    refuses: Arc<AtomicBool>,
}

impl Evictable {
    /// Contents are kept, or dropped and written again by every other worker. Every third pool is registered, and agrees to
    /// sleep.
    pub(super) fn new(fixture: &Fixture, number: u64) -> Self {
        let priority = u32::try_from(number / 2).expect("it is small");
        let mut options = PoolOptions::new().evictable(Priority(priority));
        let (reloads, refuses) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        if number % 2 == 1 {
            let (reloads, refuses) = (Arc::clone(&reloads), Arc::clone(&refuses));
            options = options.reload(move |_| {
                if refuses.swap(false, Relaxed) {
                    return Err("it was asked to fail");
                }
                reloads.fetch_add(1, Relaxed);
                Ok(())
            });
        }
        if number.is_multiple_of(3) {
            options = options.registered(true).before_sleep(|_| Ok::<_, &str>(()));
        }
        let pool = fixture.allocator.create_pool_with(options).expect("nothing fails yet");
        Self { guard: None, held: Vec::new(), growing: None, pool, reloads, reloaded: 0, refuses }
    }
}

impl Worker<'_> {
    /// Takes a guard. What the pool held is there again, or was written again.
    fn enter_evictable(&mut self) -> Option<Resident> {
        let fixture = self.fixture;
        let guard = match self.evictable.pool.make_resident() {
            Ok(guard) => guard,
            Err(Error::PoolCallback { error, .. }) => {
                assert_eq!(error, "it was asked to fail");
                return None;
            }
            Err(error) => {
                assert!(fixture.allows(&error), "{error}");
                return None;
            }
        };
        assert!(!self.evictable.pool.is_asleep(), "a pool with a guard is awake");
        let reloads = self.evictable.reloads.load(Relaxed);
        let mut held = std::mem::take(&mut self.evictable.held);
        if reloads > std::mem::replace(&mut self.evictable.reloaded, reloads) {
            held.retain_mut(|held| self.refill(held));
            if let Some(growing) = &mut self.evictable.growing {
                growing.refill(fixture);
            }
        }
        for item in &held {
            self.check(item, "a buffer of the evictable pool");
        }
        self.evictable.held = held;
        if let Some(growing) = &self.evictable.growing {
            growing.check(fixture);
        }
        Some(guard)
    }

    pub(super) fn use_evictable(&mut self) {
        let fixture = self.fixture;
        let Some(_here) = self.enter_evictable() else { return };
        if self.random.once_in(2) {
            self.change_evictable_growable();
            return;
        }
        let (stream, length) = (self.stream(), self.random.bytes());
        let made =
            self.evictable.pool.enter(stream).and_then(|_inside| fixture.allocator.allocate_buffer(length, stream));
        if let Some(buffer) = fixture.done(made) {
            let mut held = Held { buffer, byte: 0 };
            if self.refill(&mut held) {
                self.evictable.held.push(held);
            }
        }
        if let Some(at) = self.random.place(&self.evictable.held) {
            let mut held = self.evictable.held.swap_remove(at);
            // The eviction waits for this read, which nothing else waits for.
            let user = *self.random.of(&fixture.users());
            let memory = held.buffer.allocation();
            let place = (memory.address(), memory.requested(), held.byte);
            if let Some(read) = fixture.read_elsewhere(place, held.buffer.stream(), user) {
                memory.record_stream(user);
                self.downloads.push(read);
                self.check_downloads();
            }
            if self.refill(&mut held) && self.random.once_in(2) {
                self.evictable.held.push(held);
            }
        }
    }

    /// Changes the growable memory of the pool, while it is resident.
    fn change_evictable_growable(&mut self) {
        let stream = self.stream();
        match &mut self.evictable.growing {
            None => self.evictable.growing = Growing::new(self.fixture, Some(&self.evictable.pool), stream),
            Some(growing) if self.random.once_in(2) => growing.commit(self.fixture, &mut self.random),
            Some(growing) => growing.decommit(self.fixture, &mut self.random),
        }
    }

    /// Begins or ends a guard that lives for several steps.
    pub(super) fn hold_evictable(&mut self) {
        self.evictable.guard = match self.evictable.guard.take() {
            Some(_) => None,
            None => self.enter_evictable(),
        };
    }

    /// Lets the next reload fail, or drops memory of the pool wherever it is.
    pub(super) fn disturb_evictable(&mut self) {
        if self.random.once_in(2) {
            self.evictable.refuses.store(true, Relaxed);
        } else if let Some(at) = self.random.place(&self.evictable.held) {
            drop(self.evictable.held.swap_remove(at));
        } else {
            self.evictable.growing = None;
        }
    }

    /// Asks for memory as another process would.
    pub(super) fn evict(&mut self) {
        let bytes = self.random.bytes() as u64;
        self.fixture.done(self.fixture.allocator.evict(bytes));
    }

    /// Ends guards, so that other pools may wake, and drops what it can.
    pub(super) fn end_evictable(&mut self) {
        self.evictable.refuses.store(false, Relaxed);
        self.evictable.guard = None;
        if let Some(_here) = self.enter_evictable() {
            self.evictable.held.clear();
            self.evictable.growing = None;
        }
    }

    /// Drops what is left: its pool may still sleep.
    pub(super) fn leave_evictable(&mut self) {
        self.end_evictable();
        self.evictable.held.clear();
        self.evictable.growing = None;
    }
}

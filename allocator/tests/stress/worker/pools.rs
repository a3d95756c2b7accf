//! Steps with a pool that sleeps, and with one that is brought back to a saved state.

use cachette::pool::{Checkpoint, PoolProblem};
use cachette::sleep::Contents;
use cachette::{Error, Pool, PoolOptions};

use crate::fixture::{Fixture, Held};

use super::Worker;
use super::raw::Raw;

/// A pool of one worker, which sleeps now and then.
#[derive(Debug)]
pub(super) struct SleepingPool {
    pub(super) pool: Pool,
    tag: String,
    pub(super) held: Vec<Held>,
    /// Whether the contents were dropped when it fell asleep.
    dropped: bool,
}

impl SleepingPool {
    pub(super) fn new(fixture: &Fixture, number: u64) -> Self {
        let tag = format!("worker {number}");
        let pool = fixture.allocator.create_pool_with(PoolOptions::new().tag(&*tag));
        Self { pool: pool.expect("nothing fails yet"), tag, held: Vec::new(), dropped: false }
    }
}

/// A pool of one worker whose memory is known by address alone, and its saved state.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) pool: Pool,
    raw: Vec<Raw>,
    state: Option<(Checkpoint, Vec<Raw>)>,
}

impl Saved {
    pub(super) fn new(fixture: &Fixture) -> Self {
        Self { pool: fixture.allocator.create_pool(), raw: Vec::new(), state: None }
    }
}

impl Worker<'_> {
    pub(super) fn allocate_in_sleeping(&mut self) {
        let (fixture, stream) = (self.fixture, self.stream());
        let length = self.random.bytes();
        let made = {
            let _inside = self.sleeping.pool.enter_all();
            fixture.allocator.allocate_buffer::<u8>(length, stream)
        };
        if let Some(buffer) = fixture.done(made) {
            let mut held = Held { buffer, byte: 0 };
            if self.refill(&mut held) {
                self.sleeping.held.push(held);
            }
        }
    }

    pub(super) fn sleep_or_wake(&mut self) {
        if self.sleeping.pool.is_asleep() {
            self.wake();
        } else {
            let drops = self.random.once_in(5);
            let contents = if drops { Contents::Discard } else { Contents::Keep };
            let slept = if self.random.once_in(3) {
                let allocator = &self.fixture.allocator;
                allocator.sleep_tagged(&self.sleeping.tag, contents)
            } else {
                self.sleeping.pool.sleep(contents)
            };
            self.fixture.done(slept);
            // Also after a failure: memory that it gave up on the way has lost its contents.
            self.sleeping.dropped |= drops;
            self.after_waking();
        }
    }

    fn wake(&mut self) -> bool {
        let woken = self.fixture.done(self.sleeping.pool.wake()).is_some();
        self.after_waking();
        woken
    }

    /// Looks at everything that was kept, if the pool is awake.
    fn after_waking(&mut self) {
        if self.sleeping.pool.is_asleep() {
            return;
        }
        let mut held = std::mem::take(&mut self.sleeping.held);
        if std::mem::take(&mut self.sleeping.dropped) {
            held.retain_mut(|held| self.refill(held));
        }
        for item in &held {
            self.check(item, "a buffer that slept");
        }
        self.sleeping.held = held;
    }

    pub(super) fn touch_sleeping(&mut self) {
        let Some(at) = self.random.place(&self.sleeping.held) else {
            return;
        };
        let mut held = self.sleeping.held.swap_remove(at);
        if self.random.once_in(2) {
            return;
        }
        if !self.sleeping.pool.is_asleep() {
            self.check(&held, "a buffer of the sleeping pool");
            self.refill(&mut held);
        }
        self.sleeping.held.push(held);
    }

    pub(super) fn end_sleeping(&mut self) {
        if self.sleeping.pool.is_asleep() {
            let woken = self.sleeping.pool.wake();
            // A device that withholds memory may have none left for it.
            assert!(woken.is_ok() || self.fixture.kind.withholds(), "{woken:?}");
        }
        self.after_waking();
        self.sleeping.held.clear();
    }

    pub(super) fn change_saved(&mut self) {
        let (fixture, stream) = (self.fixture, self.stream());
        if self.random.once_in(2)
            && let Some(at) = self.random.place(&self.saved.raw)
        {
            let raw = self.saved.raw.swap_remove(at);
            self.check_raw(&raw, "memory of the saved pool");
            self.use_elsewhere(&raw, stream);
            fixture.done(fixture.allocator.free_raw(raw.address));
            return;
        }
        let bytes = self.random.bytes() as u64;
        let Some(inside) = fixture.done(self.saved.pool.enter(stream)) else {
            return;
        };
        // SAFETY: 1. 2. the stream is the allocator's, and lives as long as the round.
        let made = unsafe { fixture.allocator.allocate_raw(bytes, stream.handle()) };
        drop(inside);
        if let Some(address) = fixture.done(made) {
            let raw = self.filled(address, bytes, stream);
            self.saved.raw.extend(raw);
        }
    }

    pub(super) fn save_or_restore(&mut self) {
        let fixture = self.fixture;
        if fixture.kind.skips_cache() {
            return;
        }
        let Some((state, raw)) = self.saved.state.take() else {
            if let Some(state) = fixture.done(self.saved.pool.checkpoint()) {
                let raw = self.saved.raw.clone();
                self.saved.state = Some((state, raw));
            }
            return;
        };
        match self.saved.pool.restore(&state) {
            Ok(_) => {
                let mut addresses: Vec<u64> = raw.iter().map(|raw| raw.address).collect();
                addresses.sort_unstable();
                assert!(self.saved.pool.check_live_allocations(&addresses));
                // What is restored holds anything.
                let filled = |raw: &Raw| self.filled(raw.address, raw.bytes, &raw.stream);
                self.saved.raw = raw.iter().filter_map(filled).collect();
            }
            // Another worker has emptied the cache.
            Err(Error::Pool { why: PoolProblem::Changed { .. }, .. }) => {}
            Err(error) => assert!(fixture.allows(&error), "{error}"),
        }
    }

    pub(super) fn end_saved(&mut self) {
        for raw in std::mem::take(&mut self.saved.raw) {
            self.check_raw(&raw, "memory of the saved pool");
            let freed = self.fixture.allocator.free_raw(raw.address);
            freed.expect("no call fails any more");
        }
    }
}

//! Steps with a pool that sleeps, and with one that is brought back to a saved state.

use cachette::pool::{Checkpoint, PoolProblem};
use cachette::sleep::Contents;
use cachette::{Error, Pool, PoolOptions};

use crate::bytes::assert_filled;
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

/// A pool of one worker with buffers and memory known by its address alone, and its saved state.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) pool: Pool,
    raw: Vec<Raw>,
    owned: Vec<Held>,
    state: Option<(Checkpoint, Vec<Raw>)>,
}

impl Saved {
    pub(super) fn new(fixture: &Fixture) -> Self {
        Self { pool: fixture.allocator.create_pool(), raw: Vec::new(), owned: Vec::new(), state: None }
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
            // Also after a failure: memory that it gave up on the way has lost its contents.
            self.sleeping.dropped |= drops;
            let slept = if self.random.once_in(3) {
                let allocator = &self.fixture.allocator;
                allocator.sleep_tagged(&self.sleeping.tag, contents)
            } else {
                self.sleeping.pool.sleep(contents)
            };
            self.fixture.done(slept);
            self.after_waking();
            if self.sleeping.pool.is_asleep() && self.random.once_in(3) {
                self.fixture.done(self.sleeping.pool.spill_contents(&std::env::temp_dir()));
            }
        }
    }

    fn wake(&mut self) -> bool {
        let woken = self.fixture.done(self.sleeping.pool.wake()).is_some();
        self.after_waking();
        woken
    }

    /// Looks at everything that was kept, if the pool is awake.
    pub(super) fn after_waking(&mut self) {
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
        if self.sleeping.pool.is_asleep() {
            let mut read = vec![0; held.buffer.len()];
            let found = self.sleeping.pool.read_contents(held.buffer.allocation().address(), &mut read);
            let found = self.fixture.done(found).expect("the pool sleeps");
            // Memory that came past the cache does not sleep.
            let is_kept = !self.sleeping.dropped && !self.fixture.kind.skips_cache();
            assert!(found || !is_kept, "contents of a sleeping pool are lost");
            if found && !self.sleeping.dropped {
                assert_filled(&read, held.byte, "kept contents");
            }
        } else {
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
        if self.random.once_in(3)
            && let Some(at) = self.random.place(&self.saved.raw)
        {
            let raw = self.saved.raw.swap_remove(at);
            self.check_raw(&raw, "memory of the saved pool");
            self.use_elsewhere(&raw, stream);
            fixture.done(fixture.allocator.free_raw(raw.address));
            return;
        }
        if self.random.once_in(3)
            && let Some(at) = self.random.place(&self.saved.owned)
        {
            let held = self.saved.owned.swap_remove(at);
            self.check(&held, "a buffer of the saved pool");
            return;
        }
        let length = self.random.bytes();
        let Some(inside) = fixture.done(self.saved.pool.enter(stream)) else {
            return;
        };
        if self.random.once_in(3) {
            let made = fixture.allocator.allocate_buffer::<u8>(length, stream);
            drop(inside);
            if let Some(buffer) = fixture.done(made) {
                let mut held = Held { buffer, byte: 0 };
                if self.refill(&mut held) {
                    self.saved.owned.push(held);
                }
            }
            return;
        }
        // SAFETY: 1. 2. the stream is the allocator's, and lives as long as the round.
        let made = unsafe { fixture.allocator.allocate_raw(length as u64, stream.handle()) };
        drop(inside);
        if let Some(address) = fixture.done(made) {
            let raw = self.filled(address, length as u64, stream);
            self.saved.raw.extend(raw);
        }
    }

    pub(super) fn save_or_restore(&mut self) {
        let fixture = self.fixture;
        if fixture.kind.skips_cache() {
            return;
        }
        let Some((state, places)) = self.saved.state.clone() else {
            if let Some(state) = fixture.done(self.saved.pool.checkpoint()) {
                let owned = self.saved.owned.iter().map(|held| Raw {
                    address: held.buffer.allocation().address(),
                    bytes: held.buffer.len() as u64,
                    stream: held.buffer.stream().clone(),
                    byte: held.byte,
                });
                let places = self.saved.raw.iter().cloned().chain(owned).collect();
                self.saved.state = Some((state, places));
            }
            return;
        };
        let restored = self.saved.pool.restore(&state);
        match restored {
            Ok(_) => {
                let addresses: Vec<u64> = places.iter().map(|place| place.address).collect();
                assert!(self.saved.pool.check_live_allocations(&addresses));
                self.find_saved();
            }
            // Another worker has emptied the cache, or this one has a buffer that the state does not know.
            Err(Error::Pool { why: PoolProblem::Changed { .. } | PoolProblem::Owned { .. }, .. }) => {}
            Err(error) => assert!(fixture.allows(&error), "{error}"),
        }
        self.saved.state = None;
    }

    /// Finds the memory of the saved pool again, and looks at what has an owner. Other memory holds anything.
    pub(super) fn find_saved(&mut self) {
        if self.fixture.kind.skips_cache() {
            return;
        }
        let live = self.saved.pool.live_allocations();
        let saved = self.saved.state.iter().flat_map(|(_, places)| places);
        let mut places: Vec<Raw> = self.saved.raw.iter().chain(saved).cloned().collect();
        places.sort_by_key(|place| place.address);
        places.dedup_by_key(|place| place.address);
        let owners = self.saved.owned.iter().map(|held| held.buffer.allocation().address());
        let owners: Vec<u64> = owners.collect();
        places.retain(|place| live.contains(&place.address) && !owners.contains(&place.address));
        // The saved memory and the current one may begin at one address.
        let allocator = &self.fixture.allocator;
        let bytes = |place: &Raw| allocator.requested_at(place.address).expect("it is live");
        let filled = places.iter().filter_map(|place| self.filled(place.address, bytes(place), &place.stream));
        self.saved.raw = filled.collect();
        for held in &self.saved.owned {
            self.check(held, "a buffer of the saved pool after a restore");
        }
    }

    pub(super) fn end_saved(&mut self) {
        for held in std::mem::take(&mut self.saved.owned) {
            self.check(&held, "a buffer of the saved pool");
        }
        for raw in std::mem::take(&mut self.saved.raw) {
            self.check_raw(&raw, "memory of the saved pool");
            let freed = self.fixture.allocator.free_raw(raw.address);
            freed.expect("no call fails any more");
        }
    }
}

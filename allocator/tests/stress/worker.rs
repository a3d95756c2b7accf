//! One of the programs of a round, which draws what it does next.

mod buffers;
mod evictable;
mod graphs;
mod growable;
mod pinned;
mod pools;
mod raw;
mod settings;
mod shared;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cachette::hal::{Call, ErrorKind};

use crate::bytes::Download;
use crate::fixture::{Fixture, Held, SinkPanic, Stream};
use crate::kind::Extra;
use crate::random::Random;

use evictable::Evictable;
use graphs::Graphs;
use growable::Growing;
use pools::{Saved, SleepingPool};
use raw::Raw;
use shared::Shared;

/// One of the programs of a round.
pub(crate) struct Worker<'a> {
    fixture: &'a Fixture,
    pub(crate) number: u64,
    random: Random,
    /// Steps so far, and the name of the last.
    pub(crate) steps: u64,
    pub(crate) doing: &'static str,
    buffers: Vec<Held>,
    raw: Vec<Raw>,
    downloads: Vec<Download>,
    sleeping: SleepingPool,
    saved: Saved,
    graphs: Graphs,
    shared: Vec<Shared>,
    growing: Vec<Growing>,
    evictable: Evictable,
}

/// How often, what, and how.
type Step<'a> = (usize, &'static str, fn(&mut Worker<'a>));

impl<'a> Worker<'a> {
    /// What a worker does.
    const STEPS: [Step<'a>; 34] = [
        (20, "allocate a buffer", Self::allocate_buffer),
        (8, "read a buffer", Self::read_buffer),
        (8, "drop a buffer", Self::drop_buffer),
        (4, "write a buffer", Self::write_buffer),
        (6, "copy a buffer", Self::copy_buffer),
        (6, "release a buffer after streams", Self::release_after),
        (4, "record a stream", Self::record_stream),
        (4, "exchange a buffer", Self::exchange),
        (8, "allocate by address", Self::allocate_raw),
        (4, "read by address", Self::read_raw),
        (4, "use by address in another stream", Self::use_raw),
        (5, "free by address", Self::free_raw),
        (4, "allocate in the sleeping pool", Self::allocate_in_sleeping),
        (4, "sleep or wake", Self::sleep_or_wake),
        (3, "touch the sleeping pool", Self::touch_sleeping),
        (6, "change the saved pool", Self::change_saved),
        (3, "save or restore", Self::save_or_restore),
        (8, "capture or launch", Self::capture_or_launch),
        (3, "upload from pinned memory", Self::upload),
        (3, "upload from pinned memory by address", Self::upload_raw),
        (3, "read into pinned memory", Self::download),
        (4, "share memory", Self::share),
        (3, "make or drop growable memory", Self::make_growable),
        (6, "commit growable memory", Self::commit),
        (4, "decommit growable memory", Self::decommit),
        (3, "read growable memory", Self::check_growable),
        (8, "use the evictable pool", Self::use_evictable),
        (3, "begin or end a guard", Self::hold_evictable),
        (2, "disturb the evictable pool", Self::disturb_evictable),
        (2, "evict", Self::evict),
        (3, "empty a cache", Self::empty_cache),
        (3, "let the tracker panic", Self::arm_tracker),
        (3, "change settings", Self::change_settings),
        (4, "let the device run", Self::let_run),
    ];

    pub(crate) fn new(fixture: &'a Fixture, number: u64) -> Self {
        Self {
            fixture,
            number,
            random: Random::new(fixture.kind.seed, number),
            steps: 0,
            doing: "begin",
            buffers: Vec::new(),
            raw: Vec::new(),
            downloads: Vec::new(),
            sleeping: SleepingPool::new(fixture, number),
            saved: Saved::new(fixture),
            graphs: Graphs::new(fixture),
            shared: Vec::new(),
            growing: Vec::new(),
            evictable: Evictable::new(fixture, number),
        }
    }

    /// Does one thing.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        if self.fixture.kind.fails && self.random.once_in(10) {
            self.plan_failure();
        }
        let all: usize = Self::STEPS.iter().map(|(weight, ..)| weight).sum();
        let mut left = self.random.below(all);
        for (weight, name, act) in Self::STEPS {
            if left < weight {
                self.doing = name;
                self.act(act);
                break;
            }
            left -= weight;
        }
        if self.downloads.len() > 6 {
            self.check_downloads();
        }
    }

    /// Takes a step, which the tracker may end by a panic.
    fn act(&mut self, act: fn(&mut Self)) {
        let mut acted = catch_unwind(AssertUnwindSafe(|| act(self)));
        // The tracker of another thread's allocation may panic again meanwhile.
        while let Err(panic) = acted {
            if !panic.is::<SinkPanic>() {
                resume_unwind(panic);
            }
            self.doing = "go on after a panic of the tracker";
            acted = catch_unwind(AssertUnwindSafe(|| {
                if !self.is_recording() {
                    self.end_active_capture();
                }
                self.after_waking();
                self.find_saved();
                self.check_committed();
            }));
        }
    }

    /// Repeats the numbers of one step, whatever came before it.
    pub(crate) fn step_with(&mut self, random: Random) {
        self.random = random;
        self.step();
    }

    /// Lets one of the next calls of the driver fail. Only calls that have been made before are drawn.
    fn plan_failure(&mut self) {
        let host = &self.fixture.host;
        // An import that cannot wait for the device stays open as long as the process.
        let spares = if self.fixture.kind.has(Extra::Sharing) { Some(Call::SynchronizeDevice) } else { None };
        let made = |call: &Call| host.calls(*call) > 0 && spares != Some(*call);
        let calls: Vec<Call> = Call::ALL.iter().copied().filter(made).collect();
        let kind = *self.random.of(&[ErrorKind::OutOfMemory, ErrorKind::Other]);
        let call = *self.random.of(&calls);
        host.fail_next(call, 1 + self.random.below(4) as u64, kind);
    }

    fn stream(&mut self) -> &'a Stream {
        let fixture = self.fixture;
        self.random.of(&fixture.streams)
    }

    fn check_downloads(&mut self) {
        for download in self.downloads.drain(..) {
            download.check(self.fixture);
        }
    }

    /// Frees about half of what the worker has, when a request found no memory.
    fn make_room(&mut self) {
        self.buffers.truncate(self.buffers.len() / 2);
        while self.raw.len() > 2 {
            self.free_raw();
        }
        if !self.sleeping.pool.is_asleep() {
            self.sleeping.held.truncate(2);
        }
        self.growing.truncate(1);
    }

    /// Checks and frees everything but a pool that sleeps, now that no call fails any more.
    pub(crate) fn finish(&mut self) {
        self.doing = "check everything at the end";
        self.end_graphs();
        self.end_shared();
        self.check_downloads();
        while !self.buffers.is_empty() {
            self.read_buffer();
            self.drop_buffer();
        }
        while !self.raw.is_empty() {
            self.read_raw();
            self.free_raw();
        }
        self.check_downloads();
        self.end_saved();
        for growing in std::mem::take(&mut self.growing) {
            growing.check(self.fixture);
        }
        self.end_evictable();
        if !self.sleeping.pool.is_asleep() {
            self.end_sleeping();
        }
        // A pool in use keeps its unused memory from other pools.
        for pool in self.fixture.pools.iter().chain([&self.saved.pool, &self.sleeping.pool]) {
            pool.empty_cache().expect("no call fails any more");
        }
        self.fixture.second.empty_cache().expect("no call fails any more");
    }

    /// Wakes the pool, now that all other memory is free.
    pub(crate) fn leave(&mut self) {
        self.doing = "wake at the end";
        self.leave_evictable();
        self.end_sleeping();
    }
}

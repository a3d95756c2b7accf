//! One of the programs of a round, which draws what it does next.

mod buffers;
mod graphs;
mod pools;
mod raw;
mod settings;
mod staged;

use cachette::hal::{Call, ErrorKind};

use crate::bytes::Download;
use crate::draw::Draw;
use crate::kind::Kind;
use crate::world::{Held, Lane, World};

use graphs::Graphs;
use pools::{Room, Saved};
use raw::Raw;

/// One of the programs of a round.
pub(crate) struct Worker<'a> {
    world: &'a World,
    pub(crate) number: u64,
    draw: Draw,
    /// Steps so far, and the name of the last.
    pub(crate) steps: u64,
    pub(crate) doing: &'static str,
    buffers: Vec<Held>,
    raw: Vec<Raw>,
    downloads: Vec<Download>,
    room: Room,
    saved: Saved,
    graphs: Graphs,
}

/// How often, what, and how.
type Step<'a> = (usize, &'static str, fn(&mut Worker<'a>));

impl<'a> Worker<'a> {
    /// What a worker does.
    const STEPS: [Step<'a>; 24] = [
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
        (4, "allocate in the room", Self::allocate_in_room),
        (4, "sleep or wake", Self::sleep_or_wake),
        (3, "touch the room", Self::touch_room),
        (6, "change the saved pool", Self::change_saved),
        (3, "save or restore", Self::save_or_restore),
        (8, "capture or launch", Self::capture_or_launch),
        (3, "upload from pinned memory", Self::upload),
        (3, "upload from pinned memory by address", Self::upload_raw),
        (3, "read into pinned memory", Self::download),
        (3, "empty a cache", Self::empty_cache),
        (3, "change settings", Self::change_settings),
        (4, "let the device run", Self::let_run),
    ];

    pub(crate) fn new(world: &'a World, number: u64) -> Self {
        Self {
            world,
            number,
            draw: Draw::new(world.kind.seed, number),
            steps: 0,
            doing: "begin",
            buffers: Vec::new(),
            raw: Vec::new(),
            downloads: Vec::new(),
            room: Room::new(world, number),
            saved: Saved::new(world),
            graphs: Graphs::new(world),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.world.kind
    }

    /// Does one thing.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        if self.world.kind.fails && self.draw.once_in(10) {
            self.plan_failure();
        }
        let all: usize = Self::STEPS.iter().map(|(weight, ..)| weight).sum();
        let mut left = self.draw.below(all);
        for (weight, name, act) in Self::STEPS {
            if left < weight {
                self.doing = name;
                act(self);
                break;
            }
            left -= weight;
        }
        if self.downloads.len() > 6 {
            self.check_downloads();
        }
    }

    /// Lets one of the next calls of the driver fail. Only calls that have been made before are drawn.
    fn plan_failure(&mut self) {
        let host = &self.world.host;
        let made = |call: &Call| host.calls(*call) > 0;
        let calls: Vec<Call> = Call::ALL.iter().copied().filter(made).collect();
        let kind = *self.draw.of(&[ErrorKind::OutOfMemory, ErrorKind::Other]);
        let call = *self.draw.of(&calls);
        host.fail_next(call, 1 + self.draw.below(4) as u64, kind);
    }

    fn stream(&mut self) -> &'a Lane {
        let world = self.world;
        self.draw.of(&world.streams)
    }

    fn check_downloads(&mut self) {
        for download in self.downloads.drain(..) {
            download.check(self.world);
        }
    }

    /// Frees about half of what the worker has, when a request found no memory.
    fn make_room(&mut self) {
        self.buffers.truncate(self.buffers.len() / 2);
        while self.raw.len() > 2 {
            self.free_raw();
        }
        if !self.room.pool.is_asleep() {
            self.room.held.truncate(2);
        }
    }

    /// Checks and frees everything but a room that sleeps, now that no call fails any more.
    pub(crate) fn finish(&mut self) {
        self.doing = "check everything at the end";
        self.end_graphs();
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
        if !self.room.pool.is_asleep() {
            self.end_room();
        }
        // A pool in use keeps its unused memory from other pools.
        for pool in self.world.pools.iter().chain([&self.saved.pool, &self.room.pool]) {
            pool.empty_cache().expect("no call fails any more");
        }
    }

    /// Wakes the room, now that all other memory is free.
    pub(crate) fn leave(&mut self) {
        self.doing = "wake at the end";
        self.end_room();
    }
}

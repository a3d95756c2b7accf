//! Steps with memory that is known by its address alone.

use crate::bytes::assert_filled;
use crate::fixture::Stream;

use super::Worker;

/// Memory that is known by its address alone, and holds one byte everywhere.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: Stream,
    pub(super) byte: u8,
}

impl Worker<'_> {
    pub(super) fn allocate_raw(&mut self) {
        let (fixture, stream) = (self.fixture, self.stream());
        let bytes = self.random.bytes() as u64;
        let made = if self.random.once_in(4) {
            let owned = fixture.pools[0].allocate(bytes, stream);
            owned.map(cachette::Allocation::into_raw)
        } else {
            // SAFETY: 1. 2. the stream is the allocator's, and lives as long as the round.
            unsafe { fixture.allocator.allocate_raw(bytes, stream.handle()) }
        };
        match fixture.done(made) {
            Some(address) => self.raw.extend(self.filled(address, bytes, stream)),
            None => self.make_room(),
        }
    }

    /// Fills memory, or frees it again if that fails.
    pub(super) fn filled(&self, address: u64, bytes: u64, stream: &Stream) -> Option<Raw> {
        let byte = self.fixture.byte();
        let filled = self.fixture.fill(address, byte, bytes, stream);
        if filled.is_none() {
            self.fixture.done(self.fixture.allocator.free_raw(address));
            return None;
        }
        Some(Raw { address, bytes, stream: stream.clone(), byte })
    }

    pub(super) fn check_raw(&self, raw: &Raw, what: &str) {
        if let Some(read) = self.fixture.read(raw.address, raw.bytes, &raw.stream) {
            assert_filled(&read, raw.byte, what);
        }
    }

    pub(super) fn read_raw(&mut self) {
        if let Some(at) = self.random.place(&self.raw) {
            self.check_raw(&self.raw[at], "memory known by its address");
        }
    }

    pub(super) fn use_raw(&mut self) {
        let stream = self.stream();
        if let Some(at) = self.random.place(&self.raw) {
            let raw = self.raw[at].clone();
            self.use_elsewhere(&raw, stream);
            if self.random.once_in(2) {
                self.raw.swap_remove(at);
                self.fixture.done(self.fixture.allocator.free_raw(raw.address));
            } else {
                // It is written next by its own stream, which knows nothing of the read.
                self.check_downloads();
            }
        }
    }

    /// Lets another stream read memory, and says so.
    pub(super) fn use_elsewhere(&mut self, raw: &Raw, stream: &Stream) {
        let place = (raw.address, raw.bytes, raw.byte);
        let Some(read) = self.fixture.read_elsewhere(place, &raw.stream, stream) else {
            return;
        };
        let allocator = &self.fixture.allocator;
        // SAFETY: 1. 2. the stream is the allocator's, and lives as long as the round.
        let noted = unsafe { allocator.record_stream_raw(raw.address, stream.handle()) };
        noted.expect("the address is right");
        self.downloads.push(read);
    }

    pub(super) fn free_raw(&mut self) {
        if let Some(at) = self.random.place(&self.raw) {
            let raw = self.raw.swap_remove(at);
            self.fixture.done(self.fixture.allocator.free_raw(raw.address));
        }
    }
}

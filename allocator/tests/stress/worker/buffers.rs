//! Steps with buffers: safe calls alone.

use crate::bytes::assert_filled;
use crate::fixture::Held;

use super::Worker;

impl Worker<'_> {
    pub(super) fn allocate_buffer(&mut self) {
        let fixture = self.fixture;
        let length = self.random.bytes();
        let stream = if self.random.once_in(5) { self.random.of(&fixture.second_streams) } else { self.stream() };
        let allocator = fixture.allocator_of(stream);
        let inside = match self.random.below(8) {
            number @ 0..3 if std::ptr::eq(allocator, &raw const fixture.allocator) => {
                match fixture.done(fixture.pools[number].enter(stream)) {
                    Some(inside) => Some(inside),
                    None => return,
                }
            }
            _ => None,
        };
        let made = allocator.allocate_buffer::<u8>(length, stream);
        drop(inside);
        match fixture.done(made) {
            Some(buffer) => {
                let mut held = Held { buffer, byte: 0 };
                if self.refill(&mut held) {
                    self.buffers.push(held);
                }
            }
            None => self.make_room(),
        }
    }

    /// Fills a buffer with another byte; whether that was queued. After a failure it holds what it held.
    pub(super) fn refill(&self, held: &mut Held) -> bool {
        let byte = self.fixture.byte();
        let filled = self.fixture.done(held.buffer.fill(byte)).is_some();
        if filled {
            held.byte = byte;
        }
        filled
    }

    /// Reads a buffer and looks at every byte, unless a call fails.
    pub(super) fn check(&self, held: &Held, what: &str) {
        if let Some(read) = self.fixture.done(held.buffer.read()) {
            assert_filled(&read, held.byte, what);
        }
    }

    pub(super) fn read_buffer(&mut self) {
        if let Some(at) = self.random.place(&self.buffers) {
            self.check(&self.buffers[at], "a buffer");
        }
    }

    pub(super) fn drop_buffer(&mut self) {
        if let Some(at) = self.random.place(&self.buffers) {
            drop(self.buffers.swap_remove(at));
        }
    }

    pub(super) fn write_buffer(&mut self) {
        let Some(at) = self.random.place(&self.buffers) else {
            return;
        };
        let mut held = self.buffers.swap_remove(at);
        if self.random.once_in(2) {
            self.refill(&mut held);
        } else {
            let byte = self.fixture.byte();
            let content = vec![byte; held.buffer.len()];
            // After a failure it may hold the one or the other.
            if self.fixture.done(held.buffer.write(&content)).is_none() {
                return;
            }
            held.byte = byte;
        }
        self.buffers.push(held);
    }

    /// Copies to another stream, and goes on with the source at once.
    pub(super) fn copy_buffer(&mut self) {
        let fixture = self.fixture;
        let Some(at) = self.random.place(&self.buffers) else {
            return;
        };
        let mut source = self.buffers.swap_remove(at);
        let allocator = fixture.allocator_of(source.buffer.stream());
        let is_second = std::ptr::eq(allocator, &raw const fixture.second);
        let stream = if is_second { self.random.of(&fixture.second_streams) } else { self.stream() };
        let made = allocator.allocate_buffer(source.buffer.len(), stream);
        if let Some(mut copy) = fixture.done(made) {
            let byte = source.byte;
            if fixture.done(copy.copy_from(&source.buffer)).is_some() {
                self.buffers.push(Held { buffer: copy, byte });
            }
        }
        match self.random.below(3) {
            0 => return,
            1 => drop(self.refill(&mut source)),
            _ => {}
        }
        self.buffers.push(source);
    }

    /// Lets other streams read a buffer, and gives it back at once.
    pub(super) fn release_after(&mut self) {
        let fixture = self.fixture;
        let Some(at) = self.random.place(&self.buffers) else {
            return;
        };
        let Held { buffer, byte } = self.buffers.swap_remove(at);
        let home = buffer.stream().clone();
        let memory = buffer.into_allocation();
        let mut users = Vec::new();
        for stream in fixture.users() {
            if self.random.once_in(3) {
                let place = (memory.address(), memory.requested(), byte);
                let read = fixture.read_elsewhere(place, &home, stream);
                self.downloads.extend(read);
                users.push(stream);
            }
        }
        fixture.done(memory.release_after(&users));
    }

    /// Lets another stream read a buffer, says so, and frees it now or later.
    pub(super) fn record_stream(&mut self) {
        let fixture = self.fixture;
        let stream = *self.random.of(&fixture.users());
        let Some(at) = self.random.place(&self.buffers) else {
            return;
        };
        let Held { buffer, byte } = &self.buffers[at];
        let memory = buffer.allocation();
        let place = (memory.address(), memory.requested(), *byte);
        let Some(read) = fixture.read_elsewhere(place, buffer.stream(), stream) else {
            return;
        };
        memory.record_stream(stream);
        self.downloads.push(read);
        if self.random.once_in(2) {
            drop(self.buffers.swap_remove(at));
        } else {
            // It is written next by its own stream, which knows nothing of the read.
            self.check_downloads();
        }
    }

    /// Gives a buffer to another worker, or takes one.
    pub(super) fn exchange(&mut self) {
        let gives = self.random.once_in(2);
        let mut offered = self.fixture.exchange();
        if gives {
            if let Some(at) = self.random.place(&self.buffers) {
                offered.push(self.buffers.swap_remove(at));
            }
        } else if let Some(at) = self.random.place(&offered) {
            self.buffers.push(offered.swap_remove(at));
        }
    }
}

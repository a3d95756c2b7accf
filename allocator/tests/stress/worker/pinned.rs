//! Steps with pinned host memory.

use cachette::hal::DevicePtr;

use crate::bytes::{assert_filled, transfer};

use super::Worker;

impl Worker<'_> {
    /// Uploads from pinned memory, and frees that at once.
    pub(super) fn upload(&mut self) {
        let fixture = self.fixture;
        let Some(at) = self.random.place(&self.buffers) else {
            return;
        };
        let held = &mut self.buffers[at];
        let made = fixture.allocator.pinned().allocate(held.buffer.len() as u64);
        let Some(mut staged) = fixture.done(made) else {
            return;
        };
        let byte = fixture.byte();
        // SAFETY: 1. no device knows the memory yet.
        unsafe { staged.as_mut_slice() }.fill(byte);
        // SAFETY: 1. the device only reads it.
        let content = unsafe { staged.as_slice() };
        // SAFETY: 1. the use is recorded below, so that the memory stays as it is until the stream has come so far.
        let written = unsafe { held.buffer.write_async(content) };
        if fixture.done(written).is_some() {
            held.byte = byte;
        }
        staged.record_stream(held.buffer.stream());
    }

    /// The same by address.
    pub(super) fn upload_raw(&mut self) {
        let fixture = self.fixture;
        let Some(at) = self.random.place(&self.raw) else {
            return;
        };
        let raw = &mut self.raw[at];
        let length = usize::try_from(raw.bytes).expect("it fits the host");
        let pinned = fixture.allocator.pinned();
        let Some(staged) = fixture.done(pinned.allocate_raw(raw.bytes)) else {
            return;
        };
        let byte = fixture.byte();
        // SAFETY: the memory is this worker's, and has so many bytes.
        unsafe { staged.write_bytes(byte, length) };
        let to = DevicePtr::new(raw.address).expect("memory has an address");
        let (transfer, stream) = (transfer(&raw.stream), raw.stream.handle());
        // SAFETY: 1. the stream is live. 3. both have so many bytes. 4. the use is recorded below.
        let queued = unsafe { transfer.upload(to, staged, length, stream) };
        if fixture.done(queued).is_some() {
            raw.byte = byte;
        }
        // SAFETY: 1. 2. the stream is the allocator's, and lives as long as the round.
        let noted = unsafe { pinned.record_stream_raw(staged, &fixture.allocator, stream) };
        noted.expect("the address is right");
        fixture.done(pinned.free_raw(staged));
    }

    pub(super) fn download(&mut self) {
        let fixture = self.fixture;
        let Some(at) = self.random.place(&self.buffers) else {
            return;
        };
        let held = &self.buffers[at];
        let made = fixture.allocator.pinned().allocate(held.buffer.len() as u64);
        let Some(mut staged) = fixture.done(made) else {
            return;
        };
        // SAFETY: 1. no other work uses the memory.
        let to = unsafe { staged.as_mut_slice() };
        // SAFETY: 1. `to` is not touched before the stream was waited for.
        let queued = unsafe { held.buffer.read_async(to) };
        staged.record_stream(held.buffer.stream());
        if fixture.done(queued).is_some() {
            fixture.settle(held.buffer.stream());
            // SAFETY: 1. the device has written it.
            let read = unsafe { staged.as_slice() };
            assert_filled(read, held.byte, "a buffer read into pinned memory");
        }
    }
}

//! Steps with memory that is shared inside the process.

use cachette::{Error, ImportedMemory, SharedMemory};

use crate::bytes::assert_filled;
use crate::fixture::{Held, Stream};
use crate::kind::Extra;

use super::Worker;

/// Memory that is shared, and opened by one of the allocators. Its parts are dropped in any order.
#[derive(Debug)]
pub(super) struct Shared {
    owner: Option<Held>,
    export: Option<SharedMemory>,
    import: ImportedMemory,
    bytes: u64,
    byte: u8,
    /// A stream of the allocator that has opened it.
    stream: Stream,
}

impl Worker<'_> {
    pub(super) fn share(&mut self) {
        if !self.fixture.kind.has(Extra::Sharing) {
            return;
        }
        if self.shared.len() < 2 {
            self.export();
            return;
        }
        let at = self.random.below(self.shared.len());
        self.check_shared(&self.shared[at]);
        match self.random.below(3) {
            0 => drop(self.shared[at].owner.take()),
            1 => drop(self.shared[at].export.take()),
            _ => self.close(at),
        }
    }

    /// Shares a buffer, and opens it.
    fn export(&mut self) {
        let fixture = self.fixture;
        let Some(at) = self.random.place(&self.buffers) else {
            return;
        };
        let owner = self.buffers.swap_remove(at);
        let (bytes, byte) = (owner.buffer.len() as u64, owner.byte);
        // A reader knows nothing of the writer's stream.
        fixture.settle(owner.buffer.stream());
        let allocator = fixture.allocator_of(owner.buffer.stream());
        let by_address = self.random.once_in(3);
        let memory = owner.buffer.allocation();
        let export = if by_address { allocator.share_raw(memory.address()) } else { allocator.share(memory) };
        let Some(export) = self.shared_or_refused(export) else {
            return;
        };
        let streams = if self.random.once_in(2) { &fixture.streams } else { &fixture.second_streams };
        let stream = self.random.of(streams);
        let opened = fixture.allocator_of(stream).open_shared(&export.handle());
        let Some(import) = self.shared_or_refused(opened) else {
            return;
        };
        let (owner, export) = (Some(owner), Some(export));
        self.shared.push(Shared { owner, export, import, bytes, byte, stream: stream.clone() });
    }

    /// Closes shared memory while a read of it is queued.
    fn close(&mut self, at: usize) {
        let Shared { import, bytes, byte, stream, .. } = &self.shared[at];
        let read = self.fixture.read_elsewhere((import.address(), *bytes, *byte), stream, stream);
        self.downloads.extend(read);
        drop(self.shared.swap_remove(at));
    }

    /// What came of sharing. Not all memory can be shared, and a driver call that fails on the other side looks like a
    /// refusal.
    fn shared_or_refused<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Err(Error::Ipc(_)) => None,
            outcome => self.fixture.done(outcome),
        }
    }

    fn check_shared(&self, shared: &Shared) {
        let read = self.fixture.read(shared.import.address(), shared.bytes, &shared.stream);
        if let Some(read) = read {
            assert_filled(&read, shared.byte, "shared memory");
        }
    }

    pub(super) fn end_shared(&mut self) {
        for shared in std::mem::take(&mut self.shared) {
            self.check_shared(&shared);
        }
    }
}

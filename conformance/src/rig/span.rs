//! Ranges of device memory that borrow their owner, and live streams.

use std::marker::PhantomData;

use cachette_hal::owned::OpenedToken;
use cachette_hal::{AnyDevice, DevicePtr, StreamRef};

use super::{Mapping, Memory, Pooled, Stream};

/// A range of device memory that borrows its owner.
///
/// Only an owner creates it, so it lies inside live memory (promise 3). Owners wait for the device before they free
/// memory, so it stays live until queued work has finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'m> {
    start: DevicePtr,
    bytes: u64,
    owner: PhantomData<&'m ()>,
}

impl<'m> Span<'m> {
    pub(super) const fn new(start: DevicePtr, bytes: u64) -> Self {
        Self { start, bytes, owner: PhantomData }
    }

    /// Returns the first `bytes` of memory of another process, which reports its size.
    pub(crate) const fn opened(token: &'m OpenedToken<AnyDevice>, bytes: u64) -> Self {
        Self::new(token.base(), bytes)
    }

    /// Adjacent mappings as one range.
    pub(crate) fn joined(mappings: &'m [Mapping<'_>]) -> Self {
        let start = mappings[0].ptr();
        let mut bytes = 0;
        for mapping in mappings {
            assert_eq!(mapping.ptr(), start.add(bytes), "the mappings are adjacent");
            bytes += mapping.bytes();
        }
        Self::new(start, bytes)
    }

    pub(crate) const fn start(self) -> DevicePtr {
        self.start
    }

    pub(crate) const fn bytes(self) -> u64 {
        self.bytes
    }

    pub(crate) fn part(self, offset: u64, bytes: u64) -> Self {
        assert!(offset + bytes <= self.bytes, "the part lies inside");
        Self::new(self.start.add(offset), bytes)
    }

    /// Returns the part at `position` among parts of `bytes` bytes.
    pub(crate) fn nth(self, position: impl Into<u64>, bytes: u64) -> Self {
        self.part(position.into() * bytes, bytes)
    }

    /// The first address and the size.
    pub(crate) const fn range(self) -> (u64, u64) {
        (self.start.address(), self.bytes)
    }
}

pub(crate) trait Place {
    fn span(&self) -> Span<'_>;
}

/// Implements [`Place`] by the owner's first address and size.
macro_rules! places {
    ($($owner:ty),+) => {$(
        impl Place for $owner {
            fn span(&self) -> Span<'_> {
                Span::new(self.ptr(), self.bytes())
            }
        }
    )+};
}

places!(Memory, Mapping<'_>, Pooled<'_>);

/// A live stream (promise 1).
pub(crate) trait AsStream: Sync {
    fn handle(&self) -> StreamRef;
}

impl AsStream for Stream {
    fn handle(&self) -> StreamRef {
        self.get()
    }
}

/// The default stream, which is always live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefaultStream;

impl AsStream for DefaultStream {
    fn handle(&self) -> StreamRef {
        StreamRef::DEFAULT
    }
}

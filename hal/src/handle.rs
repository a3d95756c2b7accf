//! Handles and addresses: pointer-sized numbers with a type.

use std::fmt;
use std::num::NonZeroU64;

/// An address in device memory: a number that the host never dereferences.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DevicePtr(NonZeroU64);

impl DevicePtr {
    /// Wraps an address; `None` for zero.
    #[must_use]
    pub const fn new(address: u64) -> Option<Self> {
        match NonZeroU64::new(address) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }

    /// The address as a number.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0.get()
    }

    /// The address `bytes` further on.
    ///
    /// # Panics
    ///
    /// If the sum exceeds the address space, which does not happen inside real memory.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        match self.0.checked_add(bytes) {
            Some(address) => Self(address),
            None => panic!("a device address overflowed"),
        }
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A borrowed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct StreamRef(usize);

impl StreamRef {
    /// The driver's default stream; it always exists, and streams created by
    /// [`Device::create_stream`](crate::Device::create_stream) do not wait for it.
    pub const DEFAULT: Self = Self(0);

    /// Wraps a vendor's stream handle.
    ///
    /// This is safe; *using* a stream that is not live breaks promise 1 of the crate.
    #[must_use]
    pub const fn from_raw(raw: usize) -> Self {
        Self(raw)
    }

    /// The driver's own handle.
    #[must_use]
    pub const fn raw(self) -> usize {
        self.0
    }
}

/// Declares an owning handle: a number that must be returned to the device that created it.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $lost:literal) => {
        $(#[$doc])*
        #[derive(Debug, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        #[must_use = $lost]
        pub struct $name(usize);

        impl $name {
            /// Wraps a handle that the driver has just returned.
            pub const fn from_raw(raw: usize) -> Self {
                Self(raw)
            }

            /// The driver's own handle.
            #[must_use]
            pub const fn raw(&self) -> usize {
                self.0
            }
        }
    };
}

handle!(
    /// A stream created by [`Device::create_stream`](crate::Device::create_stream).
    Stream,
    "a stream that is dropped is leaked"
);
handle!(
    /// An event created by [`Device::create_event`](crate::Device::create_event).
    Event,
    "an event that is dropped is leaked"
);
handle!(
    /// A graph, ready to launch, created by [`Capture::end_capture`](crate::Capture::end_capture).
    Graph,
    "a graph that is dropped is leaked"
);

impl Stream {
    /// Borrows the stream.
    #[must_use]
    pub const fn borrow(&self) -> StreamRef {
        StreamRef(self.0)
    }
}

/// Physical memory, not an address; created by
/// [`VirtualMemory::create_backing`](crate::VirtualMemory::create_backing).
///
/// It stores its size because only the whole backing can be mapped: HIP accepts nothing else.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "backing that is dropped is leaked"]
pub struct Backing {
    raw: usize,
    bytes: u64,
}

impl Backing {
    /// Wraps a handle of `bytes` bytes that the driver has just returned.
    pub const fn from_raw(raw: usize, bytes: u64) -> Self {
        Self { raw, bytes }
    }

    /// The driver's own handle.
    #[must_use]
    pub const fn raw(&self) -> usize {
        self.raw
    }

    /// Bytes of physical memory.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Whether recorded work has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Still running, or not begun.
    Pending,
    /// Finished.
    Done,
}

impl Progress {
    /// Whether the work has finished.
    #[must_use]
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Done)
    }
}

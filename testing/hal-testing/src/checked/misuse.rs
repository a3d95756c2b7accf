//! Misuse of a device, as a value whose `Display` is a sentence.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::sync::Arc;
use std::thread;

use cachette_hal::{Call, ErrorKind};

/// Declares [`Resource`]: for each kind its name, the call that ends it, and the participle of that verb.
macro_rules! resources {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $ended_by:ident, $participle:literal;)*) => {
        /// A kind of resource that a caller of a device must release.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Resource {
            $($(#[$doc])* $kind,)*
        }

        impl Resource {
            /// The name used in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The call that ends it.
            #[must_use]
            pub const fn ended_by(self) -> Call {
                match self {
                    $(Self::$kind => Call::$ended_by,)*
                }
            }

            const fn participle(self) -> &'static str {
                match self {
                    $(Self::$kind => $participle,)*
                }
            }
        }
    };
}

resources! {
    /// From `allocate`.
    Memory: "memory", Free, "freed";
    /// From `allocate_on`.
    StreamOrderedMemory: "stream-ordered memory", FreeOn, "freed";
    /// From `allocate_pinned`.
    PinnedMemory: "pinned memory", FreePinned, "freed";
    /// Host memory passed to `register`.
    RegisteredMemory: "registered memory", Unregister, "unregistered";
    /// From `open_token`.
    OpenedMemory: "opened memory", CloseToken, "closed";
    /// From `reserve`.
    Reservation: "reservation", Release, "released";
    /// From `map`.
    Mapping: "mapping", Unmap, "unmapped";
    /// From `create_backing`, `import_backing` or `import_fabric`.
    Backing: "backing", DestroyBacking, "destroyed";
    /// From `create_stream`.
    Stream: "stream", DestroyStream, "destroyed";
    /// From `create_event`.
    Event: "event", DestroyEvent, "destroyed";
    /// From `end_capture`.
    Graph: "graph", DestroyGraph, "destroyed";
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A call that created or ended a [`Resource`].
#[derive(Clone, Debug)]
pub struct Origin {
    /// The call.
    pub call: Call,
    /// Its unique position in the order of all calls that create or end a resource.
    pub sequence: u64,
    /// The calling thread's name, or its number if it has none.
    pub thread: String,
    /// The call stack, if `RUST_BACKTRACE` enables it.
    pub backtrace: Option<Arc<Backtrace>>,
}

impl Origin {
    pub(super) fn here(call: Call, sequence: u64) -> Self {
        let thread = thread::current();
        let backtrace = Backtrace::capture();
        Self {
            call,
            sequence,
            thread: thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned),
            backtrace: (backtrace.status() == BacktraceStatus::Captured).then(|| Arc::new(backtrace)),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, sequence, thread, .. } = self;
        write!(f, "{call} (call {sequence}, thread {thread})")
    }
}

/// How a device was misused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MisuseKind {
    /// Ended a second time.
    EndedTwice,
    /// Used after its end.
    UsedAfterEnd,
    /// Unknown to this device.
    Foreign,
    /// Ended by the call of another [`Resource`], or although it was only adopted.
    WrongCall,
    /// An address inside a resource, instead of its start.
    Interior,
    /// The range is not one whole mapping, nor adjacent whole mappings where those are allowed.
    NotMapped,
    /// The range overlaps a live mapping.
    AlreadyMapped,
    /// The range lies in no live reservation.
    NotReserved,
    /// A mapping lives in the reservation.
    StillMapped,
    /// The size differs from that of its creation.
    WrongSize,
    /// No capture was begun on the stream.
    NotCaptured,
    /// A capture that was begun on the stream has not ended.
    StillCaptured,
    /// The range extends beyond live memory, or was never in it.
    OutOfBounds,
    /// Never ended.
    Leaked,
}

impl MisuseKind {
    /// The kind of the error that the wrong call returns.
    pub(super) const fn error_kind(self) -> ErrorKind {
        match self {
            Self::EndedTwice | Self::UsedAfterEnd | Self::Foreign | Self::WrongCall | Self::Leaked => {
                ErrorKind::InvalidHandle
            }
            _ => ErrorKind::InvalidValue,
        }
    }
}

/// One misuse of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Misuse {
    /// The kind of misuse.
    pub what: MisuseKind,
    /// The wrong call; for a leak, the missing call.
    pub call: Call,
    /// The handle or address that was passed.
    pub subject: u64,
    /// The size that was passed; zero if none.
    pub bytes: u64,
    /// The resource that the subject is, was, should be, lies in or overlaps.
    pub resource: Resource,
    /// The start of that resource; the subject itself if it is a handle.
    pub start: u64,
    /// The bytes of that resource; zero if none, or if unknown.
    pub size: u64,
    /// The call that created that resource, or `None` if unknown. For [`MisuseKind::StillCaptured`], the call that
    /// began the capture.
    pub origin: Option<Origin>,
    /// The call that ended that resource, if any.
    pub ended: Option<Origin>,
}

impl Misuse {
    pub(super) const fn of(what: MisuseKind, call: Call, resource: Resource, subject: u64, bytes: u64) -> Self {
        Self { what, call, subject, bytes, resource, start: subject, size: 0, origin: None, ended: None }
    }

    /// Writes the fault, without the resource's history.
    fn write_fault(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, participle) = (self.resource, self.resource.participle());
        match self.what {
            MisuseKind::EndedTwice => write!(f, "this {resource} was already {participle}"),
            MisuseKind::UsedAfterEnd => {
                write!(f, "this {resource} is used after it was {participle}")
            }
            MisuseKind::Foreign => write!(f, "this {resource} was never seen here, it is foreign"),
            MisuseKind::WrongCall if self.origin.is_none() => {
                write!(f, "this {resource} was only adopted, and must be ended where it was made")
            }
            MisuseKind::WrongCall => {
                write!(f, "this {resource} is to be {participle} by {}", resource.ended_by())
            }
            MisuseKind::Interior => self.write_place(f),
            MisuseKind::NotMapped if self.size > 0 => {
                f.write_str("the range is not whole mappings, ")?;
                self.write_place(f)
            }
            MisuseKind::NotMapped => f.write_str("nothing is mapped there"),
            MisuseKind::AlreadyMapped => {
                f.write_str("the range meets ")?;
                self.write_extent(f)
            }
            MisuseKind::NotReserved => {
                f.write_str("the range lies in no live reservation")?;
                if self.size == 0 {
                    return Ok(());
                }
                f.write_str(", it meets ")?;
                self.write_extent(f)
            }
            MisuseKind::StillMapped => {
                f.write_str("the reservation still holds ")?;
                self.write_extent(f)
            }
            MisuseKind::WrongSize => write!(f, "this {resource} has {} bytes", self.size),
            MisuseKind::NotCaptured => write!(f, "no capture was begun on this {resource}"),
            MisuseKind::StillCaptured => write!(f, "this {resource} is still being captured"),
            MisuseKind::OutOfBounds if self.size > 0 => {
                f.write_str("the range is not inside live memory, ")?;
                self.write_place(f)
            }
            MisuseKind::OutOfBounds => f.write_str("the range lies in no live memory known here"),
            MisuseKind::Leaked => write!(f, "this {resource} was never {participle}"),
        }
    }

    fn write_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it starts {} bytes inside ", self.subject.saturating_sub(self.start))?;
        self.write_extent(f)
    }

    /// Writes the resource with its start and size.
    fn write_extent(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, start, size, .. } = self;
        write!(f, "the {resource} at {start:#x} of {size} bytes")
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:#x}", self.call, self.subject)?;
        if self.bytes > 0 {
            write!(f, ", {} bytes", self.bytes)?;
        }
        f.write_str("): ")?;
        self.write_fault(f)?;
        if let Some(origin) = &self.origin {
            let made = match self.what {
                MisuseKind::StillCaptured => "the capture",
                MisuseKind::AlreadyMapped | MisuseKind::StillMapped => "the mapping",
                _ => "it",
            };
            write!(f, "; {made} came from {origin}")?;
        }
        if let Some(ended) = &self.ended {
            write!(f, "; it was {} by {ended}", self.resource.participle())?;
        }
        Ok(())
    }
}

impl std::error::Error for Misuse {}

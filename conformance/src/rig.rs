//! Tools of the cases: owners, content, gates and expectations.

mod capturing;
mod expect;
mod gate;
mod hex;
mod pattern;
mod pinned;
mod pooled;
mod span;
mod subject;
mod transfer;
mod virtual_memory;

pub use subject::Subject;

pub(crate) use capturing::Capturing;
pub(crate) use expect::{blocks_until_released, refuse};
pub(crate) use gate::Gate;
pub(crate) use hex::{from_hex, to_hex};
pub(crate) use pattern::pattern;
pub(crate) use pinned::{read_pinned, read_pinned_byte, write_pinned};
pub(crate) use pooled::Pooled;
pub(crate) use span::{AsStream, DefaultStream, Place, Span};
pub(crate) use subject::{Backing, Event, Graph, KIB, MIB, Mapping, Memory, Pinned, Reservation, Stream, settle};
pub(crate) use transfer::{copy_by, same};

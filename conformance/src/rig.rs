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

use gate::Gate;
use pattern::pattern;
use pooled::Pooled;
use span::{AsStream, Place, Span};
use subject::{Backing, Event, Graph, MIB, Mapping, Memory, Pinned, Reservation, Stream, settle};

/// The imports of the case files.
pub(crate) mod prelude {
    pub(crate) use super::Subject;
    pub(crate) use super::capturing::{Capturing, run};
    pub(crate) use super::expect::{blocks_until_released, eventually, joined, none_overlap, refuse};
    pub(crate) use super::gate::Gate;
    pub(crate) use super::hex::{from_hex, to_hex};
    pub(crate) use super::pattern::pattern;
    pub(crate) use super::pinned::{read_pinned, read_pinned_byte, write_pinned};
    pub(crate) use super::span::{AsStream, DefaultStream, Place, Span};
    pub(crate) use super::subject::{Backing, Event, Graph, KIB, MIB, Mapping, Memory, Reservation, Stream, settle};
    pub(crate) use super::transfer::{copy_by, link, same};
    pub(crate) use crate::case::cases;
    pub(crate) use crate::child::roles;
    pub(crate) use crate::failure::{Stop, Verdict, ensure, ensure_eq};
}

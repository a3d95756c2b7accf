//! RAII owners: each gives its handle back when it is dropped, so that ordinary callers need no `unsafe`.
//!
//! An owner holds its device as any `D: Device`: a reference, an `Arc`, or [`AnyDevice`](crate::AnyDevice).
//! Dropping cannot report a failure; `close` does the same and can. An owner that is dropped while work
//! still uses it waits for that work first, where the driver does not do so itself. If that wait fails and the device has
//! not stopped for good, the memory is not given back: `close` returns the owner, and dropping it leaks the memory.

mod closing;
mod event;
mod graph;
mod memory;
mod pinned;
mod stream;
mod token;
mod virtual_memory;

pub use closing::NotClosed;
pub use event::OwnedEvent;
pub use graph::{OwnedGraph, RelaxedCapture};
pub use memory::OwnedMemory;
pub use pinned::OwnedPinned;
pub use stream::OwnedStream;
pub use token::OpenedToken;
pub use virtual_memory::{OwnedBacking, OwnedMapping, OwnedReservation};

//! RAII owners: each returns its handle to the driver when it is dropped, so that ordinary callers need no `unsafe`.
//!
//! An owner holds its device as any `D: Device`: a reference, an `Arc`, or [`AnyDevice`](crate::AnyDevice). A drop
//! cannot report a failure; `close` does the same and can. An owner that is dropped while work still uses it waits for
//! that work first, unless the driver does so. If the wait fails and the device is not lost, the memory is not freed:
//! `close` returns the owner, and a drop leaks the memory.

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

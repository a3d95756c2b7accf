//! Forks: a child process cannot use the allocators of its parent.
//!
//! A child has the memory of its parent and one of its threads. Drivers do not work after a fork, and a lock that
//! another thread held at that moment is never released. So a request of a child to an allocator of its parent returns
//! [`Error::Forked`](crate::Error::Forked), without a lock and without a driver call. So do calls that create a stream,
//! empty the cache, put a pool to sleep, wake it or keep it resident. A free, a drop and the end of a history do
//! nothing: the memory belongs to the parent, which frees it. A snapshot is empty. A child makes no other call, which
//! could wait for a thread that it does not have.
//!
//! ```
//! use cachette::{Allocator, Backends, Error};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! match allocator.allocate(1 << 20, &stream) {
//!     Err(Error::Forked) => println!("this is a child: a new allocator is needed"),
//!     memory => drop(memory?),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `ARCHITECTURE.md` explains how a child is detected. An allocator that a child opens works on a device whose driver is part of the process: the host device. Its locks
//! have no owners, so a pair of allocate and free takes some nanoseconds more. GPU drivers reject a child whose parent
//! has used them.
//!
//! A handle of the parent that is dropped in a child releases nothing: its state may have been changing at the fork.
//!
//! # What is not guaranteed
//!
//! * A child of `vfork`, `_Fork` or the bare system call is not detected, because no handler runs in it. Such a child
//!   may only start another program.
//! * A fork inside an allocator, by a tracker, a callback, a source or a signal handler: the child returns into the
//!   middle of the call, and may wait there for a thread that it does not have.
//! * Locks outside allocators: of other libraries, and of the names of labels, the native stacks, the metadata and the
//!   annotations of the process. A child that uses these may wait for a thread of its parent.
//!
//! For a child of a child, allocators of both ancestors are inherited.

pub use crate::sync::ProcessGuard;

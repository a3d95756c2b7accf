//! A forked child gets an answer from every call of its parent's allocators: no wait, no driver call, no harm.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod child;
mod held;
#[cfg(feature = "ipc")]
mod ipc;
mod new_allocators;
mod outliving;
mod refusals;
mod threads;

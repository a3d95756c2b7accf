//! A forked child gets no memory of its parent's allocators, and frees none: no wait, no driver call, no harm.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod child;
mod held;
mod ipc;
mod new_allocators;
mod outliving;
mod refusals;
mod threads;

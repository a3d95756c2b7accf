//! Random histories: thousands of programs that nobody would write by hand.
//!
//! `placement` holds the allocator against a naive model that scans lists: every address must be the same.
//! `contents` runs real work on several streams in every order a seed gives, and looks at every byte.
//! `threads` lets threads loose on one allocator.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod contents;
mod model;
mod placement;
mod threads;

/// How many histories each test runs; all together are more than ten thousand.
pub(crate) const HISTORIES: u32 = 3_000;
/// The same for each test of elastic segments, whose blocks are larger and whose device has more to do.
pub(crate) const ELASTIC_HISTORIES: u32 = 300;

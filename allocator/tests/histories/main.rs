//! Random histories: thousands of generated programs.
//!
//! `placement` compares the allocator with a naive model that scans lists: every address must be the same.
//! The stress test runs real work in such histories, and checks every byte.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../behaviour/fixture.rs"]
#[expect(dead_code, reason = "most of it serves other tests")]
mod fixture;
mod model;
mod placement;

/// How many histories each test runs.
pub(crate) const HISTORIES: u32 = 2_000;

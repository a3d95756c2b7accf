//! Random histories: thousands of generated programs.
//!
//! `placement` compares the allocator with a naive model that scans lists: every address must be the same.
//! `contents` runs real work on several streams in an order given by a seed, and checks every byte.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod contents;
#[path = "../behaviour/fixture.rs"]
#[expect(dead_code, reason = "most of it serves other tests")]
mod fixture;
mod model;
mod placement;

/// How many histories each test of direct segments runs.
pub(crate) const HISTORIES: u32 = 2_000;
/// The same for each test of elastic segments, whose blocks are larger and whose device has more to do.
pub(crate) const ELASTIC_HISTORIES: u32 = 300;

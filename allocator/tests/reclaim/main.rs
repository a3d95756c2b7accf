//! Processes that share one device give each other memory.
//!
//! Every process is this program again, with a device whose memory is shared by a file: see [`process`].

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod crowds;
mod exchange;
mod failures;
mod one_process;
mod process;
mod waits;

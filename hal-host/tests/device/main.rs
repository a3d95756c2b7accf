//! What the host device does beyond the contract, and what only it can be asked to do.
//!
//! The contract itself is tested by the conformance suite, which runs on this device too.

#![expect(clippy::unwrap_used, reason = "what tests share is not marked as a test itself")]

mod capture;
mod failures;
mod faults;
mod freeing;
mod holds;
mod ipc;
mod lifetime;
mod memory;
mod owners;
mod phantom;
mod rig;
mod stepped;
mod virtual_memory;

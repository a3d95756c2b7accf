//! Reclaim: processes of one user on one device give each other memory that they do not use.
//!
//! A process that runs short asks the others before a request fails. Each releases idle memory to the device, and evicts
//! pools if it may. Nothing is handed over: what counts is the free memory of the device. `docs/sharing-a-card.md` is the
//! page for operators, and [`cachette_ipc::reclaim`] has the protocol.
//!
//! | module | holds |
//! |---|---|
//! | `ask` | whom a request asks, in which order, and how long it waits |
//! | `answer` | what this process answers |
//! | `release` | releases a part of the idle memory |
//! | `state` | the registration |
//! | `idle` | `idle_release`: memory that goes back without being asked for |
//!
//! # No deadlock
//!
//! A thread asks without the locks of heaps, turns and pools, and this process answers on another thread. So two processes
//! that ask each other both progress. An answer takes the same locks as `empty_cache` and an eviction do.

#![forbid(unsafe_code)]

mod answer;
mod ask;
mod idle;
mod release;
mod state;

pub(crate) use ask::Reclaim;
pub(crate) use state::ReclaimState;

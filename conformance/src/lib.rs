//! Every promise of the hardware contract as a case, run against any backend.
//!
//! A [`Case`] is one promise, named as a sentence (`events::poll_before_record_is_done`), with the groups of
//! calls it needs. A backend joins by a [`Fixture`]: a way to open it, fresh for every case.
//!
//! | to | use |
//! |---|---|
//! | join a backend to `cargo test` and nextest | [`main`] in a test without harness |
//! | run cases from a program and keep the [`Report`] | [`run`] |
//! | see what is promised | [`cases`] |
//! | record a promise that a driver is known to break | [`DEVIATIONS`] |
//!
//! Cases rely on the contract of [`cachette_hal`] alone. They run no kernels: content moves by fills and
//! copies, and a stream is held by a host function. Each runs on a thread of its own under a watchdog, and
//! owns all that it takes, so that one that fails neither hangs nor leaks.

mod case;
mod cases;
pub mod child;
mod deviations;
mod failure;
mod filter;
mod fixture;
mod harness;
mod leave;
mod report;
mod rig;
mod runner;

pub use case::Case;
pub use cases::cases;
pub use deviations::{DEVIATIONS, Deviation};
pub use failure::{Failure, Stop, Verdict};
pub use filter::{Filter, FilterError};
pub use fixture::{Fixture, Joined, Opened};
pub use harness::main;
pub use leave::leave_if_hung;
pub use report::{CaseReport, Header, Outcome, Report, Totals};
pub use rig::Subject;
pub use runner::{LIMIT, Options, RunError, run};

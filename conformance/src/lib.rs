//! Every promise of the hardware contract as a case, run against any backend.
//!
//! A [`Case`] is one promise, named as a sentence (`events::poll_before_record_is_done`), with the groups of calls it
//! needs. A backend takes part through a [`Fixture`]: a way to open it, fresh for every case.
//!
//! | to | use |
//! |---|---|
//! | join a backend to `cargo test` and nextest | [`main`] in a test without harness |
//! | run cases from a program and keep the [`Report`] | [`run`] |
//! | list the promises | [`cases`] |
//! | record a promise that a driver is known to break | [`DEVIATIONS`] |
//!
//! Cases rely only on the contract of [`cachette_hal`]. They run no kernels: fills and copies move the content, and a
//! host function holds a stream. Each case runs on a separate thread under a watchdog, and owns all its resources, so
//! that a failed case neither hangs the suite nor leaks.

mod case;
mod cases;
pub mod child;
mod deviations;
mod exit;
mod failure;
mod filter;
mod fixture;
mod harness;
mod isolate;
mod report;
mod rig;
mod runner;

pub use case::Case;
pub use cases::cases;
pub use deviations::{DEVIATIONS, Deviation};
pub use exit::exit_if_hung;
pub use failure::{Stop, Verdict};
pub use filter::{Filter, FilterError};
pub use fixture::{Fixture, Opened};
pub use harness::main;
pub use report::{CaseReport, Header, Outcome, Report, Totals};
pub use rig::Subject;
pub use runner::{LIMIT, Options, RunError, run, run_with};

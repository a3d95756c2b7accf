//! Damaged input for the tests of every parser, and the memory that parsing takes.
//!
//! A test has a folder of small files that its parser accepts. [`Run`] damages them, thousands of times, and hands each
//! mutant to the test, which asserts what the parser promises. [`Counting`] and [`usage`] measure the memory. Only
//! tests depend on this crate.
//!
//! One seed gives one sequence of mutants. A mutant that makes a test panic is printed with its seed and its number.
//!
//! | variable | means |
//! |---|---|
//! | `CACHETTE_SOAK` | seconds for each run, in place of a fixed number of mutants |
//! | `CACHETTE_SEED` | the seed, in place of a fixed one; a soak takes one from the clock |

mod memory;
mod mutate;
mod run;

pub use fastrand::Rng;
pub use memory::{Counting, Usage, usage};
pub use mutate::mutate;
pub use run::{Outcome, Run, corpus};

//! `cachette run`: unmodified programs over the emulated drivers, with Cachette in front.

mod bad_input;
mod bed;
#[path = "../program/mod.rs"]
mod program;
mod programs;
mod same;
mod signals;

//! `cachette run`: unmodified programs over the emulated drivers, with Cachette in front.

mod bad_input;
mod bed;
#[expect(dead_code, reason = "part of it serves other tests")]
#[path = "../program/mod.rs"]
mod program;
mod programs;
mod same;
mod signals;

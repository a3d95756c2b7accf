//! `cachette run`: unmodified programs over the emulated drivers, with Cachette in front.

mod bad_input;
mod bed;
mod outside;
#[path = "../program/mod.rs"]
mod program;
mod programs;
mod same;
mod signals;

//! `cachette run`: unmodified programs over the emulated drivers, with Cachette in front.

mod bad_input;
mod bed;
mod programs;
mod same;

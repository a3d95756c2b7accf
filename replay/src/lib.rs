//! Recorded programs, replayed on any device.
//!
//! | module | contents |
//! |---|---|
//! | [`trace`] | the requests of a program: read from a trace or from a snapshot |
//! | [`mod@replay`] | the memory and the time that an allocator needs for them, and whether they fit on a device |
//! | [`target`], [`table`] | the device that is measured; results as text |

pub mod replay;
pub mod table;
pub mod target;
pub mod trace;

pub use target::Target;
pub use trace::{Trace, TraceError};

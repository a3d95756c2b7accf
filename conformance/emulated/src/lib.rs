//! What the emulated libraries of several vendors share: statuses, captures, and what these record.
//!
//! CUDA and HIP have the same numbers for what stands here.

mod capture;
mod recording;
mod status;

pub use capture::{capture_of, mode_of, numbers_of, query, relaxed, tell_nodes};
pub use recording::{Destructor, GraphMemory, Recording, Recordings, UserObject};
pub use status::{Answer, INVALID_VALUE, Status, lacking, refuse_if, status_of};

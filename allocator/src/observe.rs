//! Observation of an allocator: callbacks, histories, snapshots and metrics.

pub(crate) mod callbacks;
pub mod history;
mod holders;
mod metrics;
pub mod snapshot;

pub use callbacks::{Notice, TraceAction, TraceEvent};
pub use holders::MemoryHolders;
pub use metrics::Metrics;

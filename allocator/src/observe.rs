//! Observation of an allocator: callbacks, histories, snapshots, metrics and tracing.

pub(crate) mod callbacks;
pub mod history;
mod metrics;
pub mod snapshot;

pub use callbacks::{Notice, TraceAction, TraceEvent};
pub use metrics::Metrics;

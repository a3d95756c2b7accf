//! Observation of an allocator: callbacks, histories, snapshots, metrics, probes and tracing.

pub(crate) mod callbacks;
pub mod history;
pub(crate) mod leak;
mod metrics;
pub(crate) mod probes;
pub mod snapshot;
pub(crate) mod tracing;

pub use callbacks::{TraceAction, TraceEvent};
pub use leak::LeakedAllocation;
pub use metrics::Metrics;

//! The options of a new pool: its name, its source and its policy.

use std::sync::Arc;

use super::PoolId;
use crate::source::Source;

/// How a pool is made.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PoolOptions {
    pub(super) id: Option<PoolId>,
    pub(super) source: Option<Arc<dyn Source>>,
    pub(super) no_split: bool,
    pub(super) use_on_oom: bool,
    pub(super) whole_segments: bool,
    pub(super) tag: String,
}

impl PoolOptions {
    /// A pool like any other.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls it by a name from [`PoolId::new`](super::PoolId::new).
    pub const fn id(mut self, id: PoolId) -> Self {
        self.id = Some(id);
        self
    }

    /// Takes its segments from `source` instead of the device.
    pub fn source(mut self, source: Arc<dyn Source>) -> Self {
        self.source = Some(source);
        self
    }

    /// Never splits a block: every allocation gets a separate segment.
    pub const fn no_split(mut self, on: bool) -> Self {
        self.no_split = on;
        self
    }

    /// Lets it sleep and wake together with others of this tag; see [`sleep`](crate::sleep).
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// Gets elastic memory for large requests in whole segments of 20 MiB, while there is enough of it.
    ///
    /// It holds more than chunks that follow the need, and is for programs that count on the figures of PyTorch's
    /// expandable segments.
    pub const fn whole_segments(mut self, on: bool) -> Self {
        self.whole_segments = on;
        self
    }

    /// Lets its free blocks serve other requests before those fail.
    pub const fn use_on_oom(mut self, on: bool) -> Self {
        self.use_on_oom = on;
        self
    }
}

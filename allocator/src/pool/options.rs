//! The options of a new pool: its id, its source and its policy.

use std::sync::Arc;

use super::PoolId;
use crate::source::Source;

/// The options of a new pool.
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
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id, from [`PoolId::new`](super::PoolId::new).
    pub const fn id(mut self, id: PoolId) -> Self {
        self.id = Some(id);
        self
    }

    /// Allocates segments from `source` instead of the device.
    pub fn source(mut self, source: Arc<dyn Source>) -> Self {
        self.source = Some(source);
        self
    }

    /// Disables splits: every allocation gets a separate segment, which is direct.
    pub const fn no_split(mut self, on: bool) -> Self {
        self.no_split = on;
        self
    }

    /// Sets the tag. Pools with the same tag can sleep and wake together; see [`sleep`](crate::sleep).
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// Maps elastic memory for large requests in whole segments of 20 MiB, while there is enough memory.
    ///
    /// This holds more memory than chunks of the needed size. It is for programs that rely on the figures of PyTorch's
    /// expandable segments.
    pub const fn whole_segments(mut self, on: bool) -> Self {
        self.whole_segments = on;
        self
    }

    /// Lets the pool's free blocks serve requests of other pools before those fail.
    pub const fn use_on_oom(mut self, on: bool) -> Self {
        self.use_on_oom = on;
        self
    }
}

//! The launches of the graphs of one pool.

use std::sync::Arc;

use cachette_hal::Device;

use crate::fence::Fence;
use crate::stream_state::StreamState;

/// The streams in which graphs of one pool were launched.
#[derive(Debug)]
pub(crate) struct Launches<D: Device> {
    /// How many were, so that one which comes during a wait is noticed.
    pub(super) count: u64,
    pub(super) users: Vec<Arc<StreamState<D>>>,
    /// A point after the last launch in each of these streams, once a look has marked them.
    pub(super) ends: Vec<Arc<Fence<D>>>,
}

impl<D: Device> Default for Launches<D> {
    fn default() -> Self {
        Self { count: 0, users: Vec::new(), ends: Vec::new() }
    }
}

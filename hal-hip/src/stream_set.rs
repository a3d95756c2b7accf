//! Sets of streams about which the driver itself does not answer safely.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::types::StreamHandle;

/// A set of streams.
#[derive(Debug, Default)]
pub(crate) struct StreamSet(Mutex<HashSet<StreamHandle>>);

impl StreamSet {
    fn streams(&self) -> MutexGuard<'_, HashSet<StreamHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, stream: StreamHandle) -> bool {
        self.streams().contains(&stream)
    }

    pub(crate) fn insert(&self, stream: StreamHandle) {
        self.streams().insert(stream);
    }

    /// Returns whether the stream was in the set.
    pub(crate) fn remove(&self, stream: StreamHandle) -> bool {
        self.streams().remove(&stream)
    }
}

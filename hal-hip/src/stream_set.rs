//! Captures that the driver has ended, and left on their streams: a second end of one crashes the process.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::types::StreamHandle;

/// The streams on which an ended capture was left.
#[derive(Debug, Default)]
pub(crate) struct Left(Mutex<HashSet<StreamHandle>>);

impl Left {
    fn streams(&self) -> MutexGuard<'_, HashSet<StreamHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, stream: StreamHandle) -> bool {
        self.streams().contains(&stream)
    }

    pub(crate) fn insert(&self, stream: StreamHandle) {
        self.streams().insert(stream);
    }

    /// Removes a stream that was freed of its capture, or destroyed: its handle may be reused.
    pub(crate) fn remove(&self, stream: StreamHandle) {
        self.streams().remove(&stream);
    }
}

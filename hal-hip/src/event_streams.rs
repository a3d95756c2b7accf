//! The streams of which events tell.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::types::{EventHandle, StreamHandle};

/// For each event the stream of its last record, unless that is a default one, which is never captured.
///
/// Before a query of the event, the driver looks at the stream. If that is captured now, some versions take the event for
/// a captured one, and break the capture.
#[derive(Debug, Default)]
pub(crate) struct EventStreams(Mutex<HashMap<EventHandle, StreamHandle>>);

impl EventStreams {
    fn streams(&self) -> MutexGuard<'_, HashMap<EventHandle, StreamHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of(&self, event: EventHandle) -> Option<StreamHandle> {
        self.streams().get(&event).copied()
    }

    /// Notes a record; `None` for one in a default stream.
    pub(crate) fn set(&self, event: EventHandle, stream: Option<StreamHandle>) {
        let mut streams = self.streams();
        match stream {
            Some(stream) => streams.insert(event, stream),
            None => streams.remove(&event),
        };
    }
}

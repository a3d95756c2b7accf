//! Ends of captures: each reaches the driver once, because a second one crashes the process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::types::StreamHandle;

/// The state of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A thread is ending the capture.
    UnderWay,
    /// The driver has ended it, but left it on its streams.
    Left,
}

/// The state of a stream before an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No end is known.
    Nothing,
    /// An ended capture is still on its streams.
    Left,
    /// Another thread is ending the capture.
    Busy,
}

/// The streams whose capture is being ended, or was ended and is still on them.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<HashMap<StreamHandle, End>>);

impl Ends {
    fn table(&self) -> MutexGuard<'_, HashMap<StreamHandle, End>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an end, unless another thread has begun one; [`finish`](Self::finish) follows.
    pub(crate) fn begin(&self, stream: StreamHandle) -> Found {
        match self.table().insert(stream, End::UnderWay) {
            None => Found::Nothing,
            Some(End::Left) => Found::Left,
            Some(End::UnderWay) => Found::Busy,
        }
    }

    /// Completes [`begin`](Self::begin): the capture is gone, or left on its streams.
    pub(crate) fn finish(&self, stream: StreamHandle, is_left: bool) {
        let mut table = self.table();
        if is_left {
            table.insert(stream, End::Left);
        } else {
            table.remove(&stream);
        }
    }

    /// Whether an ended capture is still on the stream.
    pub(crate) fn is_left(&self, stream: StreamHandle) -> bool {
        self.table().get(&stream) == Some(&End::Left)
    }

    /// Removes a destroyed stream, whose handle may be reused.
    pub(crate) fn forget(&self, stream: StreamHandle) {
        self.table().remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_ends_at_once_one_is_refused() {
        let ends = Ends::default();
        assert_eq!(ends.begin(16), Found::Nothing);
        assert_eq!(ends.begin(16), Found::Busy);
        assert_eq!(ends.begin(32), Found::Nothing, "another stream");
        ends.finish(16, false);
        assert_eq!(ends.begin(16), Found::Nothing, "the next capture");
    }

    #[test]
    fn what_is_left_is_known_until_it_is_gone() {
        let ends = Ends::default();
        ends.begin(16);
        ends.finish(16, true);
        assert!(ends.is_left(16));
        assert_eq!(ends.begin(16), Found::Left);
        assert!(!ends.is_left(16), "a thread is at it");
        ends.finish(16, true);
        ends.forget(16);
        assert!(!ends.is_left(16));
    }
}

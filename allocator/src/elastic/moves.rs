//! Chunks of a heap that a thread moves or gives back: a sleep of the pool waits for it.
//!
//! Between the moment when a chunk is held and the moment when it lies elsewhere, neither the heap nor its lists of
//! addresses tell where it is.

#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::blocks::{Chunk, ReservedBlock};

/// How many moves of a heap's chunks are under way.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    in_flight: Mutex<u32>,
    ended: Condvar,
}

impl Moves {
    /// Begins a move. The caller holds the heap's lock, and the heap is awake.
    pub(crate) fn begin(self: &Arc<Self>) -> Move {
        *self.lock() += 1;
        Move(Arc::clone(self))
    }

    /// Waits until no move is under way.
    pub(crate) fn wait(&self) {
        let ended = self.ended.wait_while(self.lock(), |in_flight| *in_flight > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A move that is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Move(Arc<Moves>);

impl Drop for Move {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.ended.notify_all();
    }
}

/// Chunks that are held to be moved, and the addresses that they leave.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) chunks: Vec<(Chunk, ReservedBlock)>,
    /// What the moves of their heap count; none where the heap grows alone.
    pub(crate) begun: Option<Move>,
}

impl Moved {
    /// No chunks.
    pub(crate) const fn none() -> Self {
        Self { chunks: Vec::new(), begun: None }
    }
}

//! Counting the threads that move or release chunks of a heap, so that a pool waits for them before it sleeps.
//!
//! While a thread moves a chunk, neither the blocks of the heap nor its lists of addresses contain the chunk.

#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::blocks::{Chunk, ReservedBlock};

/// The number of active moves of a heap's chunks.
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

    /// Waits until no move is active.
    pub(crate) fn wait(&self) {
        let ended = self.ended.wait_while(self.lock(), |in_flight| *in_flight > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An active move, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Move(Arc<Moves>);

impl Drop for Move {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.ended.notify_all();
    }
}

/// Chunks that are held for a move, and their old addresses.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) chunks: Vec<(Chunk, ReservedBlock)>,
    /// The active move that their heap counts; `None` if the heap moves its own chunks to grow.
    pub(crate) begun: Option<Move>,
}

impl Moved {
    /// No chunks.
    pub(crate) const fn none() -> Self {
        Self { chunks: Vec::new(), begun: None }
    }
}

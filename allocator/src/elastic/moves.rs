//! Counting the threads that move or release chunks of a heap, so that a pool waits for them before it sleeps.
//!
//! While a thread moves a chunk, neither the blocks of the heap nor its lists of addresses contain the chunk.

#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar};

use crate::blocks::{Chunk, ReservedBlock};
use crate::sync::Mutex;

/// The number of active moves of a heap's chunks.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    in_flight: Mutex<u32>,
    ended: Condvar,
}

impl Moves {
    /// Begins a move. The caller holds the heap's lock, and the heap is awake.
    pub(crate) fn begin(self: &Arc<Self>) -> Move {
        *self.in_flight.lock() += 1;
        Move(Arc::clone(self))
    }

    /// Waits until no move is active.
    pub(crate) fn wait(&self) {
        let mut in_flight = self.in_flight.lock();
        while *in_flight > 0 {
            in_flight = Mutex::wait(&self.ended, in_flight);
        }
    }
}

/// An active move, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Move(Arc<Moves>);

impl Drop for Move {
    fn drop(&mut self) {
        *self.0.in_flight.lock() -= 1;
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

//! The history entries that a heap writes under its lock.

use std::collections::HashMap;
use std::sync::Arc;

use cachette_hal::Device;

use crate::blocks::{BlockId, BlockState};
use crate::heap::{Heap, HeapGuard, HeapState};
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::observe::history::{Gathered, HistoryWriter, Level, Recording, gathered};
use crate::pool::PoolId;

pub(crate) struct HeapHistory {
    recording: Arc<Recording>,
    writer: HistoryWriter,
}

/// The stacks at which the memory of the heap was allocated; zero if unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    /// For every block in use, by index.
    pub(crate) blocks: Vec<u32>,
    /// For segments and chunks, by address.
    pub(crate) memory: HashMap<u64, u32>,
}

impl Stacks {
    pub(crate) fn of(&self, id: BlockId) -> u32 {
        self.blocks.get(id.0 as usize).copied().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.blocks.iter().all(|stack| *stack == 0)
    }

    pub(crate) fn set(&mut self, id: BlockId, stack: u32) {
        if let Some(known) = self.blocks.get_mut(id.0 as usize) {
            *known = stack;
        } else if stack != 0 {
            self.blocks.resize(id.0 as usize + 1, 0);
            self.blocks[id.0 as usize] = stack;
        }
    }
}

impl HeapHistory {
    fn write(&mut self, action: TraceAction, address: u64, bytes: u64, stack: u32) {
        self.recording.write(&mut self.writer, action, address, bytes, stack);
    }
}

impl<D: Device> HeapState<D> {
    /// Returns whether the history records stacks at `level`, and this thread has captured none.
    #[inline]
    pub(super) fn asks_for_stack(&self, level: Level) -> bool {
        let asks = |history_state: &HeapHistory| history_state.recording.source_for(level).is_some();
        gathered() == 0 && self.history_state.as_deref().is_some_and(asks)
    }

    #[inline]
    pub(crate) fn note_alloc(&mut self, id: BlockId, address: u64, requested: u64) {
        if let Some(history_state) = &mut self.history_state {
            let stack = gathered();
            self.stacks.set(id, stack);
            history_state.write(TraceAction::Alloc, address, requested, stack);
        }
    }

    /// Records that a caller freed a block, or that it became free. The block then has no stack any more.
    #[inline]
    pub(crate) fn note_free(&mut self, action: TraceAction, id: BlockId, address: u64, requested: u64) {
        if let Some(history_state) = &mut self.history_state {
            let stack = known_or(gathered(), self.stacks.of(id));
            if action == TraceAction::FreeCompleted {
                self.stacks.set(id, 0);
            }
            history_state.write(action, address, requested, stack);
        }
    }

    /// Records that a segment or a chunk was added.
    pub(crate) fn note_gain(&mut self, action: TraceAction, address: u64, bytes: u64) {
        if let Some(history_state) = &mut self.history_state {
            let stack = gathered();
            if stack != 0 && history_state.recording.keeps_of_events() {
                self.stacks.memory.insert(address, stack);
            }
            history_state.write(action, address, bytes, stack);
        }
    }

    /// Records that a segment or a chunk is removed.
    pub(crate) fn note_loss(&mut self, action: TraceAction, address: u64, bytes: u64) {
        let came = self.stacks.memory.remove(&address).unwrap_or(0);
        if let Some(history_state) = &mut self.history_state {
            history_state.write(action, address, bytes, known_or(gathered(), came));
        }
    }
}

const fn known_or(stack: u32, other: u32) -> u32 {
    if stack == 0 { other } else { stack }
}

impl<D: Device> Heap<D> {
    /// Writes later entries into another history, or into none. The stacks of the heap's memory stay if `keeps_stacks`.
    /// Returns whether there are any.
    pub(crate) fn set_recording(&self, recording: Option<&Arc<Recording>>, keeps_stacks: bool) -> bool {
        let mut history_state = recording.map(|recording| Box::new(self.notes_for(recording)));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let (Some(history_state), Some(before)) = (&mut history_state, &state.history_state) {
            history_state.writer.last = before.writer.last;
        }
        let before = std::mem::replace(&mut state.history_state, history_state);
        let stacks = if keeps_stacks { Stacks::default() } else { std::mem::take(&mut *state.stacks) };
        if recording.is_none() {
            for (id, stack) in (0..).map(BlockId).zip(&mut state.stacks.blocks).filter(|(_, stack)| **stack != 0) {
                let block = &mut state.blocks.blocks[id];
                // The free of an allocated block removes its stack. That of a pending block does not.
                if block.state == BlockState::Allocated {
                    block.slow_free = true;
                } else {
                    *stack = 0;
                }
            }
        }
        let any = !state.stacks.is_empty();
        drop(guard);
        drop((before, stacks));
        any
    }

    pub(crate) fn notes_for(&self, recording: &Arc<Recording>) -> HeapHistory {
        let pool = self.pool_id();
        let (stream, pool) = (self.stream_state.handle.raw() as u64, recording.pools.number_of(pool));
        HeapHistory {
            recording: Arc::clone(recording),
            writer: HistoryWriter { stream, pool, ..HistoryWriter::default() },
        }
    }

    /// Sets the pool of later entries.
    pub(crate) fn note_pool(state: &mut HeapState<D>, pool: PoolId) {
        if let Some(history_state) = &mut state.history_state {
            history_state.writer.pool = history_state.recording.pools.number_of(pool);
        }
    }

    /// Captures the stack, if the history records stacks at `level`. The lock is released during the capture, so other
    /// threads may change everything that the caller does not own. A panic of the source continues when the outcome is
    /// dropped.
    pub(crate) fn gather<'a>(
        &'a self,
        state: HeapGuard<'a, D>,
        level: Level,
    ) -> (HeapGuard<'a, D>, Option<Gathered>, CallbackOutcome) {
        if !state.asks_for_stack(level) {
            return (state, None, CallbackOutcome::default());
        }
        drop(state);
        let mut gathered = None;
        let outcome = CallbackOutcome::of(|| gathered = self.shared.history.gather(level));
        (self.state.lock(), gathered, outcome)
    }

    /// Records that the program annotates a block in use, and notifies the sinks.
    pub(crate) fn note_annotation(&self, id: BlockId, address: u64) -> CallbackOutcome {
        let mut state = self.state.lock();
        let bytes = state.blocks.blocks.get(id).map_or(0, |block| block.requested);
        if let Some(history_state) = &mut state.history_state {
            history_state.write(TraceAction::Annotate, address, bytes, gathered());
        }
        drop(state);
        self.tell(TraceAction::Annotate, address, bytes)
    }

    /// Records a request that failed.
    pub(crate) fn note_exhaustion(&self, free: u64, rounded: u64) {
        if let Some(history_state) = &mut self.state.lock().history_state {
            history_state.write(TraceAction::OutOfMemory, free, rounded, gathered());
        }
    }
}

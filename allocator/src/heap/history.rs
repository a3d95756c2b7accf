//! The history entries that a heap writes under its lock.

use std::collections::HashMap;
use std::sync::Arc;

use cachette_hal::Device;

use crate::blocks::BlockId;
use crate::heap::{Heap, HeapGuard, HeapState};
use crate::observe::callbacks::TraceAction;
use crate::observe::history::{CallSite, Gathered, Level, Recording, RingWriter, gathered};
use crate::pool::PoolId;

/// The history state of a heap.
#[derive(Debug)]
pub(crate) struct HeapHistory {
    recording: Arc<Recording>,
    pen: RingWriter,
    place: CallSite,
    /// The time of the last entry, so that entries are in order.
    last: u64,
    stacks: Stacks,
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
    /// The stack of a block.
    pub(crate) fn of(&self, id: BlockId) -> u32 {
        self.blocks.get(id.index()).copied().unwrap_or(0)
    }

    fn set(&mut self, id: BlockId, stack: u32) {
        if let Some(known) = self.blocks.get_mut(id.index()) {
            *known = stack;
        } else if stack != 0 {
            self.blocks.resize(id.index() + 1, 0);
            self.blocks[id.index()] = stack;
        }
    }
}

impl HeapHistory {
    fn write(&mut self, action: TraceAction, address: u64, bytes: u64, stack: u32) {
        let event = (action, address, bytes);
        let (place, last) = (self.place, self.last);
        self.last = self.recording.write(&mut self.pen, last, event, place, stack);
    }
}

impl<D: Device> HeapState<D> {
    /// Records an allocation.
    #[inline]
    pub(crate) fn note_alloc(&mut self, id: BlockId, address: u64, requested: u64) {
        if let Some(history_state) = &mut self.history_state {
            let stack = gathered();
            history_state.stacks.set(id, stack);
            history_state.write(TraceAction::Alloc, address, requested, stack);
        }
    }

    /// Records that a caller freed a block.
    #[inline]
    pub(crate) fn note_free_requested(&mut self, id: BlockId, address: u64, requested: u64) {
        if let Some(history_state) = &mut self.history_state {
            let stack = known_or(gathered(), history_state.stacks.of(id));
            history_state.write(TraceAction::FreeRequested, address, requested, stack);
        }
    }

    /// Records that a block became free.
    #[inline]
    pub(crate) fn note_free_completed(&mut self, id: BlockId, address: u64, requested: u64) {
        if let Some(history_state) = &mut self.history_state {
            let stack = known_or(gathered(), history_state.stacks.of(id));
            history_state.stacks.set(id, 0);
            history_state.write(TraceAction::FreeCompleted, address, requested, stack);
        }
    }

    /// Records that a segment or a chunk was added.
    pub(crate) fn note_gain(&mut self, action: TraceAction, address: u64, bytes: u64) {
        if let Some(history_state) = &mut self.history_state {
            let stack = gathered();
            if stack != 0 && history_state.recording.keeps_of_events() {
                history_state.stacks.memory.insert(address, stack);
            }
            history_state.write(action, address, bytes, stack);
        }
    }

    /// Records that a segment or a chunk is removed.
    pub(crate) fn note_loss(&mut self, action: TraceAction, address: u64, bytes: u64) {
        if let Some(history_state) = &mut self.history_state {
            let came = history_state.stacks.memory.remove(&address).unwrap_or(0);
            history_state.write(action, address, bytes, known_or(gathered(), came));
        }
    }

    /// Copies the stacks of the heap's memory.
    pub(crate) fn stacks(&self) -> Stacks {
        let history_state = self.history_state.as_ref();
        history_state.map(|history_state| history_state.stacks.clone()).unwrap_or_default()
    }
}

const fn known_or(stack: u32, other: u32) -> u32 {
    if stack == 0 { other } else { stack }
}

impl<D: Device> Heap<D> {
    /// Writes later entries into another history, or into none.
    pub(crate) fn set_recording(&self, recording: Option<&Arc<Recording>>) {
        let mut history_state = recording.map(|recording| Box::new(self.notes_for(recording)));
        let mut state = self.state.lock();
        if let (Some(history_state), Some(before)) = (&mut history_state, &mut state.history_state)
            && history_state.recording.goes_on(&before.recording)
        {
            history_state.stacks = std::mem::take(&mut before.stacks);
            history_state.last = before.last;
        }
        let before = std::mem::replace(&mut state.history_state, history_state);
        state.refresh(&self.shared);
        drop(state);
        drop(before);
    }

    /// Creates the history state for a recording.
    pub(crate) fn notes_for(&self, recording: &Arc<Recording>) -> HeapHistory {
        let pool = self.pool().map_or(PoolId::DEFAULT, |pool| pool.id);
        HeapHistory {
            place: CallSite { stream: self.stream_state.handle().raw() as u64, pool: recording.number_of(pool) },
            recording: Arc::clone(recording),
            pen: RingWriter::default(),
            last: 0,
            stacks: Stacks::default(),
        }
    }

    /// Sets the pool of later entries.
    pub(crate) fn note_pool(state: &mut HeapState<D>, pool: PoolId) {
        if let Some(history_state) = &mut state.history_state {
            history_state.place.pool = history_state.recording.number_of(pool);
        }
    }

    /// Captures the stack, if the history records stacks at `level`. The lock is released meanwhile, so other threads
    /// may change everything that the caller does not own.
    #[inline]
    pub(crate) fn gather<'a>(&'a self, state: HeapGuard<'a, D>, level: Level) -> (HeapGuard<'a, D>, Option<Gathered>) {
        let asks = |history_state: &HeapHistory| history_state.recording.source_for(level).is_some();
        if gathered() != 0 || !state.history_state.as_deref().is_some_and(asks) {
            return (state, None);
        }
        drop(state);
        let gathered = self.shared.history.gather(level);
        (self.state.lock(), gathered)
    }

    /// Records a request that failed.
    pub(crate) fn note_exhaustion(&self, free: u64, rounded: u64) {
        if let Some(history_state) = &mut self.state.lock().history_state {
            history_state.write(TraceAction::OutOfMemory, free, rounded, gathered());
        }
    }

    /// Records that a segment is added or removed. The caller does not hold the heap's lock.
    pub(crate) fn note_segment(&self, action: TraceAction, address: u64, bytes: u64) {
        let mut state = self.state.lock();
        match action {
            TraceAction::SegmentFree => state.note_loss(action, address, bytes),
            _ => state.note_gain(action, address, bytes),
        }
    }

    /// The stack at which a block was allocated; zero if unknown.
    pub(crate) fn stack_of(&self, id: BlockId) -> u32 {
        let state = self.state.lock();
        let history_state = state.history_state.as_ref();
        history_state.map_or(0, |history_state| history_state.stacks.of(id))
    }
}

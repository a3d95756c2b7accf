//! Snapshots: the memory and the history of an allocator, as a value.
//!
//! ```
//! use cachette::snapshot::{BlockState, SnapshotOptions};
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let memory = allocator.allocate(1 << 20, &stream)?;
//! let snapshot = allocator.snapshot_with(SnapshotOptions::new().traces(false));
//! assert_eq!(snapshot.segments[0].bytes_in(BlockState::Allocated), memory.bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each heap is copied under its lock, as plain data; all other work happens after. So every heap is consistent, but
//! two heaps may show different moments. Memory that moves between streams during the copy can be in both or in
//! neither. The history is read last, and contains at least all events that led to the shown state.

mod build;

pub use cachette_snapshot::{
    Annotation, Block, BlockState, Event, Frame, PoolId, Segment, SegmentKind, Setting, Snapshot, StackId, Stacks,
    Stage, TextId, Texts, Trace, TraceAction,
};
#[cfg(feature = "history")]
pub use cachette_snapshot::{SaveError, save};

use cachette_hal::{Device, StreamRef};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::observe::callbacks::TraceEvent;
use crate::observe::history::{self, PoolNumbers};
use crate::observe::snapshot::build::{SnapshotBuilder, settings};
use crate::pool::{self, Pool};

/// The contents of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct SnapshotOptions {
    traces: bool,
    pool: Option<pool::PoolId>,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self { traces: true, pool: None }
    }
}

impl SnapshotOptions {
    /// Includes everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Includes or omits the history and the annotations.
    pub const fn traces(mut self, on: bool) -> Self {
        self.traces = on;
        self
    }

    /// Includes only one pool.
    pub const fn pool(mut self, id: pool::PoolId) -> Self {
        self.pool = Some(id);
        self
    }
}

impl<D: Device> Allocator<D> {
    /// Returns a snapshot of the allocator's memory and history.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_with(SnapshotOptions::new())
    }

    /// Returns a snapshot with the contents that `options` select.
    #[must_use]
    pub fn snapshot_with(&self, options: SnapshotOptions) -> Snapshot {
        self.inner().snapshot_with(options)
    }
}

impl<D: Device> AllocatorState<D> {
    pub(crate) fn snapshot_with(&self, options: SnapshotOptions) -> Snapshot {
        let shared = &self.shared;
        if shared.origin.is_inherited() {
            return Snapshot::default();
        }
        let recording = shared.history.current();
        let _gathered = shared.history.gather(history::Level::All);
        // Another thread may stop the history, which still has its events then.
        let recorded = recording.as_ref().and_then(|recording| recording.source());
        let (device, source) = (shared.device.info().ordinal.0, recorded.or_else(|| shared.history.source()));
        let pools = recording.as_ref().map_or_else(PoolNumbers::default, |recording| recording.pools.clone());
        let mut building = SnapshotBuilder { device, pools, snapshot: Snapshot::default() };
        for heap in self.heaps.all() {
            let of = heap.pool().map_or(pool::PoolId::DEFAULT, |pool| pool.id);
            if options.pool.is_none_or(|only| only == of) {
                building.add_heap(&heap.copy());
            }
        }
        let numbering = source.as_ref().map(|source| source.numbering());
        if numbering.is_none() || shared.history.source().is_some_and(|now| Some(now.numbering()) != numbering) {
            // A history of another source began during the copy.
            building.each_stack(|stack| *stack = StackId::NONE);
        }
        if let Some(recording) = recording.as_ref().filter(|_| options.traces) {
            building.add_trace(recording, options.pool);
        }
        // This comes after the events are read: a snapshot contains the events before it, as in the reference.
        let (pool, bytes) = (options.pool.unwrap_or(pool::PoolId::DEFAULT), building.used_bytes());
        if let Some(recording) = shared.history.current() {
            recording.write_snapshot(pool, bytes);
        }
        let action = TraceAction::Snapshot;
        if shared.callbacks.wants(action) {
            shared.callbacks.event(&TraceEvent { action, address: 0, bytes, stream: StreamRef::DEFAULT, pool });
        }
        building.add_outside(&shared.outside.stats());
        building.end(settings(&shared.settings.config()), source)
    }
}

impl<D: Device> Pool<D> {
    /// Returns a snapshot of the pool's memory and history.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_with(SnapshotOptions::new())
    }

    /// Returns a snapshot of the pool with the contents that `options` select.
    #[must_use]
    pub fn snapshot_with(&self, options: SnapshotOptions) -> Snapshot {
        self.allocator().snapshot_with(options.pool(self.id()))
    }
}

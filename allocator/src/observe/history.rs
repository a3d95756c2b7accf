//! Histories: the most recent events of an allocator, with their call stacks.
//!
//! ```
//! use cachette::history::{self, HistoryOptions, Level};
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! allocator.record_history(HistoryOptions::new().level(Level::Alloc).max_entries(1000));
//!
//! history::set_metadata("warm-up");
//! let memory = allocator.allocate(1 << 20, &stream)?;
//! let stack = allocator.allocation_stack(memory.address()).expect("it is live");
//! println!("allocated in {}", stack.frames[0].name);
//!
//! let snapshot = allocator.snapshot();
//! let events = &snapshot.traces[0].events; // a segment, and a block of it
//! assert_eq!(events.len(), 2);
//! allocator.stop_history();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A history that is off costs nothing: heaps already test one flag for all rare cases, and a history sets that flag.
//! A history that is on takes tens of nanoseconds per event, and 96 bytes for each kept event. The cost of stacks
//! depends on their source. `docs/history.md` has the figures.

mod annotations;
#[cfg(feature = "history")]
mod callers;
#[cfg(feature = "history")]
mod object;
mod options;
mod recording;
mod stacks;

use std::num::NonZeroU32;

use cachette_hal::Device;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::observe::callbacks::TraceAction;

pub(crate) use crate::sync::clock::Scale;
pub use annotations::{Context, MOST_ANNOTATIONS, Stage, annotate, enter_context, metadata, set_metadata};
pub(crate) use annotations::{annotations, texts, with_metadata};
pub use cachette_snapshot::UnknownAction;
#[cfg(feature = "history")]
pub use callers::Callers;
pub use options::{HistoryOptions, Level};
pub(crate) use recording::{History, HistoryWriter, PoolNumbers, Recording};
pub use stacks::{Frame, RawStack, ResolvedStack, StackSource};
pub(crate) use stacks::{Gathered, aside, gathered};

impl<D: Device> Allocator<D> {
    /// Records the events of memory from now on, with `options` in place of any previous ones.
    ///
    /// Earlier events stay, unless `options` clear them.
    pub fn record_history(&self, options: HistoryOptions) {
        self.switch_history(Some(options));
    }

    /// Stops recording and drops the events. Memory in use keeps the stack of its allocation.
    pub fn stop_history(&self) {
        self.switch_history(None);
    }

    /// Returns whether a history is recorded.
    #[must_use]
    pub fn records_history(&self) -> bool {
        self.inner().shared.history.current().is_some()
    }

    fn switch_history(&self, options: Option<HistoryOptions>) {
        let inner = self.inner();
        if inner.shared.origin.is_inherited() {
            return;
        }
        inner.shared.history.switch(options, |recording, keeps_stacks| {
            inner.heaps.all().iter().fold(false, |any, heap| heap.set_recording(recording, keeps_stacks) | any)
        });
    }

    /// Records an event that adds `text` to the memory in use that begins at `address`.
    ///
    /// The event has `text` as its metadata, and the stack of this call. The memory keeps the metadata of its allocation.
    /// Without a history only trackers see the event. Texts are stored as those of [`set_metadata`] are.
    pub fn annotate(&self, address: u64, text: &str) -> Result<(), Error> {
        let shared = &self.inner().shared;
        if shared.history.current().is_none() && !shared.callbacks.wants(TraceAction::Annotate) {
            return Ok(());
        }
        let _gathered = shared.history.gather(Level::Alloc);
        let (heap, id) = self.find(address)?;
        let outcome = with_metadata(text, || heap.note_annotation(id, address));
        drop(outcome);
        Ok(())
    }

    /// Returns the stack that allocated the memory at `address`, if it is in use and the history has recorded it.
    #[must_use]
    pub fn allocation_stack(&self, address: u64) -> Option<ResolvedStack> {
        let source = self.inner().shared.history.source()?;
        let (heap, id) = self.find(address).ok()?;
        let stack = RawStack(NonZeroU32::new(heap.state.lock().stacks.of(id))?);
        source.resolve(&[stack]).into_iter().next()
    }
}

//! The options of a history.

use std::sync::Arc;

use cachette_snapshot::UnknownAction;

use crate::observe::callbacks::{TraceAction, bit};
use crate::observe::history::stacks::StackSource;

/// The events for which a history captures a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No events.
    None,
    /// Allocations; only live memory has stacks, events have none.
    State,
    /// Allocations; a free event has the stack of its allocation.
    Alloc,
    /// All events; a free event has the stack of the free.
    #[default]
    All,
}

/// The options of a history.
///
/// ```
/// use cachette::history::{HistoryOptions, Level};
///
/// let options = HistoryOptions::new()
///     .level(Level::Alloc)
///     .max_entries(1_000_000)
///     .skip_named(["free_completed"])?;
/// # let _ = options;
/// # Ok::<(), cachette::history::UnknownAction>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct HistoryOptions {
    pub(crate) level: Level,
    pub(crate) max_entries: u64,
    /// The set of actions that are not recorded.
    pub(crate) skip: u16,
    pub(crate) clear: bool,
    pub(crate) source: Option<Arc<dyn StackSource>>,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self { level: Level::All, max_entries: 100_000, skip: 0, clear: false, source: callers() }
    }
}

impl HistoryOptions {
    /// The most events that a history keeps.
    pub const MOST_ENTRIES: u64 = 100_000_000;

    /// Records the last 100,000 events, each with its stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the events for which a stack is captured.
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Sets the number of kept events, between one and [`MOST_ENTRIES`](Self::MOST_ENTRIES). Older events are
    /// overwritten. Each kept event takes about 100 bytes of host memory, once it was recorded.
    pub const fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = match entries {
            0 => 1,
            1..=Self::MOST_ENTRIES => entries,
            _ => Self::MOST_ENTRIES,
        };
        self
    }

    /// Excludes some actions.
    pub fn skip(mut self, actions: impl IntoIterator<Item = TraceAction>) -> Self {
        self.skip = actions.into_iter().fold(self.skip, |all, action| all | bit(action));
        self
    }

    /// Excludes some actions, by name.
    pub fn skip_named<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownAction> {
        let actions: Result<Vec<TraceAction>, _> = names.into_iter().map(str::parse).collect();
        Ok(self.skip(actions?))
    }

    /// Drops the events that were recorded before.
    pub const fn clear(mut self, on: bool) -> Self {
        self.clear = on;
        self
    }

    /// Switches the capture of stacks on or off. Events without stacks cost far less.
    ///
    /// Events that are already recorded keep their stacks.
    pub fn stacks(mut self, on: bool) -> Self {
        self.source = if on { callers() } else { None };
        self
    }

    /// Captures stacks with `source`, instead of walking the stack of the thread.
    ///
    /// Events and stacks of another source are dropped.
    pub fn stack_source(mut self, source: Arc<dyn StackSource>) -> Self {
        self.source = Some(source);
        self
    }
}

/// The source of native stacks; `None` without the feature `history`.
#[cfg_attr(feature = "history", expect(clippy::unnecessary_wraps, reason = "without the feature there is none"))]
fn callers() -> Option<Arc<dyn StackSource>> {
    #[cfg(feature = "history")]
    return Some(crate::observe::history::callers::Callers::shared());
    #[cfg(not(feature = "history"))]
    None
}

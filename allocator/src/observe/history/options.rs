//! What a history keeps.

use std::sync::Arc;

use cachette_snapshot::UnknownAction;

use crate::observe::callbacks::{TraceAction, bit};
use crate::observe::history::stacks::StackSource;

/// For what the history asks where in the program it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For nothing.
    None,
    /// For allocations, and it is known of what is allocated alone.
    State,
    /// For allocations, and every event has it: the end of an allocation where it began.
    Alloc,
    /// For everything: the end of an allocation has where it ended.
    #[default]
    All,
}

/// How a history is recorded.
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
    /// The set of actions that are left out.
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
    /// The last 100,000 events, each with where in the program it happened.
    pub fn new() -> Self {
        Self::default()
    }

    /// For what it is asked where in the program it happens.
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// How many events are kept, at least one; older ones are overwritten.
    pub const fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = if entries == 0 { 1 } else { entries };
        self
    }

    /// Leaves some actions out.
    pub fn skip(mut self, actions: impl IntoIterator<Item = TraceAction>) -> Self {
        self.skip = actions.into_iter().fold(self.skip, |all, action| all | bit(action));
        self
    }

    /// Leaves some actions out, by name.
    pub fn skip_named<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownAction> {
        let actions: Result<Vec<TraceAction>, _> = names.into_iter().map(str::parse).collect();
        Ok(self.skip(actions?))
    }

    /// Forgets what was recorded before.
    pub const fn clear(mut self, on: bool) -> Self {
        self.clear = on;
        self
    }

    /// Asks where in the program things happen, or never: events alone cost far less.
    ///
    /// Without, what was recorded before keeps the stacks that it has.
    pub fn stacks(mut self, on: bool) -> Self {
        self.source = if on { callers() } else { None };
        self
    }

    /// Asks `source` where in the program things happen, instead of walking the stack of the thread.
    ///
    /// What another source said before is forgotten, and all events with it.
    pub fn stack_source(mut self, source: Arc<dyn StackSource>) -> Self {
        self.source = Some(source);
        self
    }
}

/// The source of native callers; without the feature `history` there is none.
#[cfg_attr(feature = "history", expect(clippy::unnecessary_wraps, reason = "without the feature there is none"))]
fn callers() -> Option<Arc<dyn StackSource>> {
    #[cfg(feature = "history")]
    return Some(crate::observe::history::callers::Callers::shared());
    #[cfg(not(feature = "history"))]
    None
}

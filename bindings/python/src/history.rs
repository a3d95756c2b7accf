//! Histories for Python.

use cachette::Allocator;
use cachette::history::{self, HistoryOptions, Level, ResolvedStack};
use pyo3::prelude::*;

use crate::error::of_history;
use crate::report::FrameEntry;
use crate::sequence::AtMost;
use crate::stacks::PythonStacks;

/// Names of actions.
pub(crate) type Actions = AtMost<64, String>;

/// The options of a history, with PyTorch's names and meanings.
pub(crate) struct Asked<'a> {
    pub(crate) enabled: Option<&'a str>,
    pub(crate) context: Option<&'a str>,
    pub(crate) stacks: &'a str,
    pub(crate) max_entries: u64,
    pub(crate) clear_history: bool,
    pub(crate) skip_actions: Actions,
}

impl Asked<'_> {
    /// Returns the options; `None` if the history is to be stopped.
    pub(crate) fn options(&self) -> PyResult<Option<HistoryOptions>> {
        let entries = match self.enabled {
            Some("all") => {
                cachette_torch::history_entries(self.max_entries).map_err(|why| of_history(why.to_string()))?
            }
            Some("state") | None => 1,
            Some(_) => return Err(of_history("expected state to be 'state', 'all', or None")),
        };
        let level = match self.context {
            None => Level::None,
            Some("state") => Level::State,
            Some("alloc") => Level::Alloc,
            Some("all") => Level::All,
            Some(_) => return Err(of_history("expected context to be 'state', 'alloc', 'all', or None")),
        };
        let source = match self.stacks {
            // A cleared history needs none of the earlier stacks.
            "python" => PythonStacks::new(false, self.clear_history),
            "all" => PythonStacks::new(true, self.clear_history),
            _ => return Err(of_history("expected stacks to be 'python', or 'all'")),
        };
        let options = HistoryOptions::new()
            .level(level)
            .max_entries(entries)
            .clear(self.clear_history)
            .stack_source(source)
            .skip_named(self.skip_actions.0.iter().map(String::as_str))
            .map_err(|why| of_history(why.to_string()))?;
        Ok(self.enabled.is_some().then_some(options))
    }
}

/// Starts or stops the history of an allocator.
pub(crate) fn switch(allocator: &Allocator, options: Option<HistoryOptions>) {
    match options {
        Some(options) => allocator.record_history(options),
        None => allocator.stop_history(),
    }
}

/// A stack in PyTorch's form: a list of dictionaries, innermost first.
pub(crate) fn frames(stack: &ResolvedStack) -> Vec<FrameEntry> {
    stack.frames.iter().map(FrameEntry::of).collect()
}

/// Sets the metadata of this thread's events.
#[pyfunction]
pub(crate) fn set_memory_metadata(text: &str) {
    history::set_metadata(text);
}

/// The metadata of this thread's events.
#[pyfunction]
pub(crate) fn get_memory_metadata() -> String {
    history::metadata()
}

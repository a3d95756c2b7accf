//! Stacks of Python programs, for histories.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use cachette::hal::Guarded;
use cachette::history::{Callers, Frame, RawStack, ResolvedStack, StackSource};

use crate::code_locations::{self, Found, Places, Slot};
use crate::per_process::PerProcess;

/// Prefixes of this library's functions, and of those that it calls on the way.
const OWN: [&str; 4] = ["cachette", "_native", "backtrace::", "pyo3::"];
/// Prefixes of the interpreter's functions. All frames below them belong to the interpreter.
const INTERPRETER: [&str; 3] = ["_PyEval_", "PyEval_", "_PyObject_"];
/// The maximum depth of the library's own functions.
const OWN_DEPTH: usize = 40;

/// The stack of Python frames, optionally with native frames.
///
/// A thread that never ran Python has no Python frames.
pub(crate) struct PythonStacks {
    native: bool,
    known: Arc<Known>,
}

/// The stacks recorded so far. Both modes share the numbers, so a history that changes its mode keeps its events.
/// Histories hold references; the last one drops the table.
struct Known {
    places: Arc<Places>,
    table: PerProcess<Guarded<StackTable>>,
}

/// Stacks by content and by number. Entries are added completely.
#[derive(Default)]
struct StackTable {
    numbers: HashMap<Arc<Stack>, u32>,
    stacks: Vec<Arc<Stack>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Stack {
    python: Found,
    native: Option<RawStack>,
}

impl PythonStacks {
    /// The source of Python frames.
    pub(crate) fn python() -> Arc<Self> {
        Self::new(false, false)
    }

    /// The source that also walks the native stack.
    pub(crate) fn all() -> Arc<Self> {
        Self::new(true, false)
    }

    /// With `fresh` the source shares nothing with earlier ones, so that their code objects can be dropped.
    pub(crate) fn new(native: bool, fresh: bool) -> Arc<Self> {
        static SHARED: Slot<Known> = PerProcess::new();
        let make = || Known { places: Places::shared(fresh), table: PerProcess::new() };
        Arc::new(Self { native, known: code_locations::shared(&SHARED, fresh, make) })
    }

    fn stacks(&self, numbers: &[RawStack]) -> Vec<Option<Arc<Stack>>> {
        let table = self.known.table.get().lock();
        let find = |stack: &RawStack| table.stacks.get(stack.0.get() as usize - 1).cloned();
        numbers.iter().map(find).collect()
    }
}

impl Known {
    fn words_of(&self, stack: &Stack) -> ResolvedStack {
        let mut frames = stack.native.map_or_else(Vec::new, |raw| {
            let resolved = Callers::shared().resolve(&[raw]).into_iter().next();
            resolved.map_or_else(Vec::new, |resolved| without_own(resolved.frames))
        });
        frames.extend(self.places.frames_of(&stack.python.callers));
        ResolvedStack { frames, forward: self.places.frames_of(&stack.python.forward) }
    }
}

impl StackTable {
    fn number_of(&mut self, stack: Stack) -> Option<RawStack> {
        let number = if let Some(known) = self.numbers.get(&stack) {
            *known
        } else {
            let number = u32::try_from(self.stacks.len()).ok()?;
            let stack = Arc::new(stack);
            self.stacks.push(Arc::clone(&stack));
            self.numbers.insert(stack, number);
            number
        };
        NonZeroU32::new(number.checked_add(1)?).map(RawStack)
    }
}

impl StackSource for PythonStacks {
    fn capture(&self) -> Option<RawStack> {
        let python = self.known.places.here();
        let walks = self.native.then(Callers::shared);
        let native = walks.and_then(|callers| callers.capture());
        if python.is_empty() && native.is_none() {
            return None;
        }
        self.known.table.get().lock().number_of(Stack { python, native })
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        let found = self.stacks(stacks);
        let words = found.iter().map(|stack| {
            let known = stack.as_ref();
            known.map_or_else(ResolvedStack::default, |stack| self.known.words_of(stack))
        });
        words.collect()
    }

    /// The line of Python, if there is one: native frames are named only where they are read.
    fn resolve_sites(&self, stacks: &[RawStack]) -> Vec<Option<Frame>> {
        let site = |stack: &Arc<Stack>| {
            let python = self.known.places.frames_of(stack.python.callers.get(..1).unwrap_or_default()).pop();
            python.or_else(|| Callers::shared().resolve_sites(&[stack.native?]).pop().flatten())
        };
        self.stacks(stacks).iter().map(|stack| stack.as_ref().and_then(site)).collect()
    }

    fn numbering(&self) -> usize {
        Arc::as_ptr(&self.known).addr()
    }
}

impl fmt::Debug for PythonStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonStacks").field("native", &self.native).finish_non_exhaustive()
    }
}

/// Removes the native frames of this library and of the interpreter.
fn without_own(mut frames: Vec<Frame>) -> Vec<Frame> {
    let starts = |frame: &Frame, with: &[&str]| {
        let bare = frame.name.trim_start_matches('<');
        with.iter().any(|start| bare.starts_with(start))
    };
    let end = frames.iter().position(|frame| starts(frame, &INTERPRETER));
    frames.truncate(end.unwrap_or(frames.len()));
    let mut own = frames.iter().take(OWN_DEPTH);
    let last = own.rposition(|frame| starts(frame, &OWN));
    frames.drain(..last.map_or(0, |last| last + 1));
    frames
}

//! The stacks of a history that C++ code records: PyTorch captures a context for each stack.
//!
//! The numbers of stacks come from another source. The class captures one context when it first sees a number, and a
//! snapshot for the class names stacks by these numbers.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use cachette::hal::Guarded;
use cachette::history::{Callers, Frame, RawStack, ResolvedStack, StackSource};
use cachette::snapshot::{Snapshot, StackId};
use cachette_process as process;

use crate::entry::or_raise;

/// Captures PyTorch's context of the calling thread for a new stack.
pub type CaptureContext = extern "C" fn(stack: u32);

/// Creates the source that distinguishes the stacks of the process.
type MakeSource = fn() -> Arc<dyn StackSource>;

static STACKS: OnceLock<MakeSource> = OnceLock::new();

/// Sets the source that distinguishes the stacks of C++ histories, once. The default source captures native stacks.
pub fn set_stack_source(make: MakeSource) {
    let _ = STACKS.set(make);
}

thread_local! {
    /// Whether stacks are resolved to their numbers.
    static BY_NUMBER: Cell<bool> = const { Cell::new(false) };
}

/// Calls `take`, which resolves stacks to frames that [`number_in`] reads.
pub(super) fn by_number<T>(take: impl FnOnce() -> T) -> T {
    /// Resolves stacks to names again, even after a panic.
    struct ByNumber;
    impl Drop for ByNumber {
        fn drop(&mut self) {
            BY_NUMBER.set(false);
        }
    }
    let _by_number = ByNumber;
    BY_NUMBER.set(true);
    take()
}

/// Returns the number of a stack in that snapshot; zero if it has no context.
pub(super) fn number_of(taken: &Snapshot, stack: StackId) -> u32 {
    number_in(taken.stacks.frames_of(stack).next())
}

fn number_in(first: Option<&Frame>) -> u32 {
    first.filter(|frame| frame.name.is_empty()).map_or(0, |frame| frame.line)
}

/// Returns the stack that allocated the memory at an address; zero if it has no context.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_stack(ptr: *mut c_void) -> u32 {
    let find = || process::opened().find_map(|(_, allocator)| allocator.allocation_stack(ptr as u64));
    or_raise(|| Ok(by_number(find).map_or(0, |stack| number_in(stack.frames.first()))))
}

/// The stacks of another source, each with a context of PyTorch.
#[derive(Debug)]
pub(super) struct ContextStacks {
    stacks: Arc<dyn StackSource>,
    capture: CaptureContext,
    /// The stacks that have contexts.
    known: Guarded<HashSet<RawStack>>,
}

impl ContextStacks {
    pub(super) fn new(capture: CaptureContext) -> Self {
        let stacks = STACKS.get().map_or_else(|| Callers::shared() as Arc<dyn StackSource>, |make| make());
        Self { stacks, capture, known: Guarded::default() }
    }
}

impl StackSource for ContextStacks {
    fn capture(&self) -> Option<RawStack> {
        let stack = self.stacks.capture()?;
        let is_new = self.known.lock().insert(stack);
        if is_new {
            (self.capture)(stack.0.get());
        }
        Some(stack)
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        if !BY_NUMBER.get() {
            return self.stacks.resolve(stacks);
        }
        let number = |stack: &RawStack| Frame { name: String::new(), file: String::new(), line: stack.0.get() };
        stacks.iter().map(|stack| ResolvedStack { frames: vec![number(stack)], forward: Vec::new() }).collect()
    }

    fn resolve_sites(&self, stacks: &[RawStack]) -> Vec<Option<Frame>> {
        self.stacks.resolve_sites(stacks)
    }

    fn numbering(&self) -> usize {
        self.stacks.numbering()
    }
}

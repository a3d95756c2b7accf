//! The call stacks of events.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

pub use cachette_snapshot::Frame;

/// A captured call stack, as a number of its source.
///
/// Numbers start at one and have no wide gaps: a snapshot builds tables as long as the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RawStack(pub NonZeroU32);

/// A call stack with names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedStack {
    /// Its frames, innermost first.
    pub frames: Vec<Frame>,
    /// The stack that caused this work, such as the forward pass of a backward pass; empty if unknown.
    pub forward: Vec<Frame>,
}

/// Captures and resolves call stacks.
///
/// The allocator calls [`capture`](Self::capture) for every event with a stack, on the thread of the event, without
/// holding a lock. So it should only collect addresses, and return the same number for the same stack. A snapshot
/// resolves the numbers. Neither function may call the allocator.
pub trait StackSource: fmt::Debug + Send + Sync {
    /// Captures the stack of the calling thread. Returns `None` if there is none.
    fn capture(&self) -> Option<RawStack>;

    /// Resolves stacks, in the order of `stacks`. An unknown number results in an empty stack.
    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack>;

    /// Returns the frame of each stack that stands for it in texts, in the order of `stacks`: the innermost one of
    /// Python, or else with a name.
    ///
    /// The default resolves whole stacks.
    fn resolve_sites(&self, stacks: &[RawStack]) -> Vec<Option<Frame>> {
        self.resolve(stacks).into_iter().map(|stack| site_of(stack.frames)).collect()
    }

    /// Identifies the numbering: sources that return the same value resolve each other's stacks.
    ///
    /// A history that changes to a source with the same value keeps its events. The default is the source's address.
    fn numbering(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Returns the frame that stands for a stack.
fn site_of(mut frames: Vec<Frame>) -> Option<Frame> {
    let site = Frame::site(&frames.iter().collect::<Vec<_>>())?;
    Some(frames.swap_remove(site))
}

thread_local! {
    /// The stack of the thread's current request; zero for none.
    static GATHERED: Cell<u32> = const { Cell::new(0) };
}

/// A guard: while it lives, events of its thread have the captured stack.
pub(crate) struct Gathered {
    _of_thread: PhantomData<*const ()>,
}

impl Gathered {
    /// Captures the thread's stack, unless one is already captured. May run any code of `source`.
    pub(crate) fn from(source: &dyn StackSource) -> Option<Self> {
        if gathered() != 0 {
            return None;
        }
        let stack = source.capture()?;
        GATHERED.set(stack.0.get());
        Some(Self { _of_thread: PhantomData })
    }
}

/// Calls code of the program in the middle of a request. Its events have stacks of their own.
pub(crate) fn aside<T>(call: impl FnOnce() -> T) -> T {
    /// Restores the stack of the request, even after a panic.
    struct Aside(u32);
    impl Drop for Aside {
        fn drop(&mut self) {
            GATHERED.set(self.0);
        }
    }
    let _aside = Aside(GATHERED.replace(0));
    call()
}

impl Drop for Gathered {
    fn drop(&mut self) {
        GATHERED.set(0);
    }
}

/// Returns the stack of the thread's current request; zero for none.
#[inline]
pub(crate) fn gathered() -> u32 {
    GATHERED.get()
}

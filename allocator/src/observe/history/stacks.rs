//! The call stacks of events.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

pub use cachette_snapshot::Frame;

/// A stack of calls that its source knows by this number.
///
/// Numbers count from one, without wide gaps: a snapshot makes tables as long as the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RawStack(pub NonZeroU32);

/// A stack of calls in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedStack {
    /// Its frames, innermost first.
    pub frames: Vec<Frame>,
    /// Where the work was made that led here, such as the forward pass of a backward one; empty if that is unknown.
    pub forward: Vec<Frame>,
}

/// Who knows where in the program a thread is.
///
/// [`capture`](Self::capture) is called for every event that wants a stack, on the thread where it happens and with no
/// lock of the allocator held; so it gathers what it must, and gives the same number for the same stack. What the
/// numbers mean is asked when a snapshot is taken. Neither may call the allocator.
pub trait StackSource: fmt::Debug + Send + Sync {
    /// Where the calling thread is; `None` if there is nothing to know.
    fn capture(&self) -> Option<RawStack>;

    /// Some stacks in words, in the order of `stacks`; nothing for a number that is not known.
    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack>;

    /// What its numbers belong to: sources that return the same value resolve each other's stacks.
    ///
    /// A history that changes to such a source keeps its events. By default it is the address of the source.
    fn numbering(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

thread_local! {
    /// The stack of the request that the thread is about; zero for none.
    static GATHERED: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, what happens on its thread happens where it was made.
#[derive(Debug)]
pub(crate) struct Gathered {
    _of_thread: PhantomData<*const ()>,
}

impl Gathered {
    /// Asks where the thread is, unless that is known; it may call whatever `source` does.
    pub(crate) fn from(source: &dyn StackSource) -> Option<Self> {
        if gathered() != 0 {
            return None;
        }
        let stack = source.capture()?;
        GATHERED.set(stack.0.get());
        Some(Self { _of_thread: PhantomData })
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        GATHERED.set(0);
    }
}

/// The stack of the request that the thread is about; zero for none.
#[inline]
pub(crate) fn gathered() -> u32 {
    GATHERED.get()
}

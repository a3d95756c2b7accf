//! Labels: the library or the component of a program that requested memory.

use std::cmp::Reverse;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use crate::sync::thread;

/// The name of a library that asks for memory, such as `torch` or `cupy`, or of a component, such as `kv_cache`.
///
/// Snapshots show it beside each block. [`Allocator::memory_holders`](crate::Allocator::memory_holders), metrics and
/// out-of-memory errors have the bytes of each.
///
/// ```
/// use cachette::Label;
///
/// let label = Label::new("cupy");
/// assert_eq!((label, label.name()), (Label::new("cupy"), Some("cupy")));
/// assert_eq!((Label::new("torch"), Label::TORCH.name()), (Label::TORCH, Some("torch")));
/// assert_eq!(Label::NONE.name(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u8);

/// The other names, in the order of their labels. They live as long as the process.
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

impl Label {
    /// Memory with an owner in Rust, which frees it.
    pub(crate) const OWNED: Self = Self(0);
    /// Memory known by its address, without a name.
    pub const NONE: Self = Self(1);
    /// Memory of PyTorch, called `torch`.
    pub const TORCH: Self = Self(2);
    /// The label of the first name.
    const FIRST: u8 = 2;
    const CONSTANTS: [&'static str; 1] = ["torch"];

    /// The label with a name; [`NONE`](Self::NONE) after 254 different names.
    #[must_use]
    pub fn new(name: &str) -> Self {
        // Each change is one step, so a panic leaves the list valid.
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Self::CONSTANTS.iter().chain(&*names).position(|known| *known == name);
        let index = known.unwrap_or(Self::CONSTANTS.len() + names.len());
        let Some(label) = u8::try_from(index).ok().and_then(|index| index.checked_add(Self::FIRST)) else {
            return Self::NONE;
        };
        if known.is_none() {
            names.push(String::leak(name.to_owned()));
        }
        Self(label)
    }

    /// Gives the memory that this thread requests by address this label, instead of its library's, while the value lives.
    ///
    /// Values end in the reverse order of their creation. Memory with an owner in Rust has no label; give it a pool with a
    /// [tag](crate::PoolOptions::tag).
    pub fn enter(self) -> LabelScope {
        let before = thread::label();
        thread::set_label(self.0);
        LabelScope { before, of_this_thread: PhantomData }
    }

    /// The label that this thread has entered.
    pub(crate) fn of_thread() -> Option<Self> {
        let label = thread::label();
        (label != 0).then_some(Self(label))
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let index = usize::from(self.0.checked_sub(Self::FIRST)?);
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        Self::CONSTANTS.iter().chain(&*names).nth(index).copied()
    }

    /// Whether the memory is known by its address only.
    #[inline]
    pub(crate) const fn is_raw(self) -> bool {
        self.0 != Self::OWNED.0
    }
}

/// Bytes by label. Names are looked up at the end, since that takes a lock.
pub(crate) struct LabelledBytes([u64; 1 << u8::BITS]);

impl LabelledBytes {
    pub(crate) const fn new() -> Self {
        Self([0; 1 << u8::BITS])
    }

    pub(crate) fn add(&mut self, label: Label, bytes: u64) {
        self.0[usize::from(label.0)] += bytes;
    }

    /// The names with their bytes, the largest first. Memory without a name has the empty one.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        let nameless = self.0[usize::from(Label::OWNED.0)] + self.0[usize::from(Label::NONE.0)];
        let labels = (Label::FIRST..=u8::MAX).map(|label| (Label(label), self.0[usize::from(label)]));
        let used = labels.filter(|(_, bytes)| *bytes > 0);
        let named = used.filter_map(|(label, bytes)| Some((label.name()?, bytes)));
        let mut all: Vec<_> = named.chain([("", nameless)]).filter(|(_, bytes)| *bytes > 0).collect();
        all.sort_by_key(|(_, bytes)| Reverse(*bytes));
        all
    }
}

/// A label of a thread, from [`Label::enter`]. A drop restores the one before.
#[derive(Debug)]
#[must_use = "the label ends with the value"]
pub struct LabelScope {
    before: u8,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for LabelScope {
    fn drop(&mut self) {
        thread::set_label(self.before);
    }
}

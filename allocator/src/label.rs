//! Labels: the library of a program that requested memory.

use std::sync::{Mutex, PoisonError};

/// The name of a library that asks for memory, such as `torch` or `cupy`. Snapshots show it beside each block.
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

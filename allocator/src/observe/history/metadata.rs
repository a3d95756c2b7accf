//! Metadata: a text of the program that is recorded with every event of a thread.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{LazyLock, MutexGuard};

use cachette_snapshot::{TextId, Texts};

use crate::sync::Mutex;

thread_local! {
    static SAID: Cell<(TextId, TextId)> = const { Cell::new((TextId::NONE, TextId::NONE)) };
}

/// The metadata and the context of this thread.
#[inline]
pub(crate) fn said() -> (TextId, TextId) {
    SAID.get()
}

/// The words of all threads, each kept once and as long as the process.
pub(crate) fn texts() -> MutexGuard<'static, Texts> {
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    TEXTS.lock()
}

/// Lets every event of this thread carry `text`, until it is set again; an empty one is none.
///
/// Every different text is kept as long as the process, so it should name phases and not count steps.
pub fn set_metadata(text: &str) {
    let metadata = texts().add(text);
    SAID.set((metadata, said().1));
}

/// What this thread's events carry now.
#[must_use]
pub fn metadata() -> String {
    texts().get(said().0).to_owned()
}

/// Lets every event of this thread carry the name of what is being compiled, while the guard lives.
///
/// Guards nest, and the innermost counts.
#[must_use = "the context ends when the guard is dropped"]
pub fn enter_context(text: &str) -> Context {
    let context = texts().add(text);
    let (metadata, before) = said();
    SAID.set((metadata, context));
    Context { before, _of_thread: PhantomData }
}

/// While it lives, events of its thread name what is being compiled.
#[derive(Debug)]
pub struct Context {
    before: TextId,
    _of_thread: PhantomData<*const ()>,
}

impl Drop for Context {
    fn drop(&mut self) {
        SAID.set((said().0, self.before));
    }
}

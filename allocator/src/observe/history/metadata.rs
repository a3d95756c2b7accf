//! Metadata: a text of the program that is recorded with every event of a thread.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{LazyLock, MutexGuard};

use cachette_snapshot::{TextId, Texts};

use crate::sync::Mutex;

thread_local! {
    static SAID: Cell<(TextId, TextId)> = const { Cell::new((TextId::NONE, TextId::NONE)) };
}

/// Returns the metadata and the context of this thread.
#[inline]
pub(crate) fn said() -> (TextId, TextId) {
    SAID.get()
}

/// The texts of all threads. Each is stored once, until the process ends.
pub(crate) fn texts() -> MutexGuard<'static, Texts> {
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    TEXTS.lock()
}

/// Attaches `text` to every event of this thread until the next call. An empty text removes it.
///
/// Each distinct text is stored until the process ends, so texts should name phases and not count steps.
pub fn set_metadata(text: &str) {
    let metadata = texts().add(text);
    SAID.set((metadata, said().1));
}

/// Returns the text that is attached to this thread's events.
#[must_use]
pub fn metadata() -> String {
    texts().get(said().0).to_owned()
}

/// Attaches the name of the code being compiled to every event of this thread, while the guard lives.
///
/// Guards nest; the innermost one applies.
#[must_use = "the context ends when the guard is dropped"]
pub fn enter_context(text: &str) -> Context {
    let context = texts().add(text);
    let (metadata, before) = said();
    SAID.set((metadata, context));
    Context { before, _of_thread: PhantomData }
}

/// A guard: while it lives, events of its thread name the code being compiled.
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

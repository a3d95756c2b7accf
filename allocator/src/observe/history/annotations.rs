//! What the program adds to histories: named stages, for all allocators of the process, and texts of a thread.

pub use cachette_snapshot::Stage;

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, MutexGuard};

use cachette_hal::Ordinal;
use cachette_snapshot::{Annotation, TextId, Texts};

use crate::sync::Mutex;
use crate::sync::clock::{self, Scale};

/// How many annotations are kept; older ones are dropped.
pub const MOST_ANNOTATIONS: usize = 1 << 16;

/// The number of recording histories. Relaxed: a history that begins now may miss a concurrent annotation.
static RECORDED: AtomicUsize = AtomicUsize::new(0);
/// The annotations, each with its time in ticks. The time of day is computed later.
static NOTED: Mutex<VecDeque<(u64, Annotation)>> = Mutex::new(VecDeque::new());

/// Records that a stage of the program begins or ends on a device. Does nothing while no history is recorded.
///
/// The process keeps the last [`MOST_ANNOTATIONS`].
pub fn annotate(name: &str, stage: Stage, device: Ordinal) {
    if RECORDED.load(Relaxed) == 0 {
        return;
    }
    let annotation = Annotation { name: name.to_owned(), stage, device: device.0, time_us: 0 };
    let ticks = clock::now();
    let mut noted = NOTED.lock();
    if noted.len() == MOST_ANNOTATIONS {
        noted.pop_front();
    }
    noted.push_back((ticks, annotation));
}

pub(crate) fn annotations(scale: &Scale) -> Vec<Annotation> {
    let noted = NOTED.lock();
    noted.iter().map(|(ticks, known)| Annotation { time_us: scale.epoch_us(*ticks), ..known.clone() }).collect()
}

/// Keeps the recording of annotations on. Without a listener none are recorded.
pub(crate) struct Listener(());

impl Listener {
    pub(crate) fn new() -> Self {
        RECORDED.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if RECORDED.fetch_sub(1, Relaxed) == 1 {
            NOTED.lock().clear();
        }
    }
}

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

/// Calls `write` with `text` in place of the metadata of this thread.
pub(crate) fn with_metadata<T>(text: &str, write: impl FnOnce() -> T) -> T {
    let (before, context) = said();
    let metadata = texts().add(text);
    SAID.set((metadata, context));
    let written = write();
    SAID.set((before, context));
    written
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

//! Locations in Python code, each with a number.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, Weak};

use cachette::hal::Guarded;
use cachette::history::Frame;
use pyo3::prelude::*;

use crate::interpreter::{self, Place};
use crate::per_process::PerProcess;
use crate::torch_frames;

/// The locations recorded since the oldest active history began.
///
/// Every stack source holds a reference. When the last one ends, the locations and their code objects are dropped.
#[derive(Default)]
pub(crate) struct Places {
    table: PerProcess<Guarded<LocationTable>>,
}

/// The stack of a thread, as numbers of locations.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Found {
    /// Its callers, innermost first.
    pub(crate) callers: Vec<u32>,
    /// The stack of the forward operation, in a backward pass.
    pub(crate) forward: Vec<u32>,
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.forward.is_empty()
    }
}

#[derive(Default)]
struct LocationTable {
    /// Numbers by code and instruction.
    numbers: HashMap<(usize, i64), u32>,
    /// Numbers of locations from PyTorch, which have no code object.
    told: HashMap<Frame, u32>,
    /// Locations as text: readers need no interpreter.
    frames: Vec<Frame>,
    /// The code objects of the keys above, kept alive so that their addresses are not reused.
    codes: Vec<Py<PyAny>>,
}

/// The number of active histories. Relaxed: a call that runs while a history begins may miss it.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static SHARED: Slot<Places> = PerProcess::new();

thread_local! {
    /// The stack that a call of this package found before it released the GIL, and its table.
    static NOTED: RefCell<Option<(Arc<Places>, Found)>> = const { RefCell::new(None) };
    /// Whether the thread is walking its stack: that may free memory, which must not walk it again.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// The value that the histories of a process share, while any of them lives.
pub(crate) type Slot<T> = PerProcess<Guarded<Weak<T>>>;

/// The value of `slot` if it is alive, and no `fresh` one is requested; otherwise a new one.
pub(crate) fn shared<T: Send + Sync>(slot: &Slot<T>, fresh: bool, make: impl FnOnce() -> T) -> Arc<T> {
    let mut slot = slot.get().lock();
    slot.upgrade().filter(|_| !fresh).unwrap_or_else(|| {
        let new = Arc::new(make());
        *slot = Arc::downgrade(&new);
        new
    })
}

impl Places {
    /// The table of the active histories, or a new one.
    pub(crate) fn shared(fresh: bool) -> Arc<Self> {
        shared(&SHARED, fresh, || {
            LIVE.fetch_add(1, Relaxed);
            Self::default()
        })
    }

    /// The table of the active histories, if there is one.
    fn of_histories() -> Option<Arc<Self>> {
        if LIVE.load(Relaxed) == 0 {
            return None;
        }
        SHARED.get().lock().upgrade()
    }

    /// Returns the stack of this thread; empty if it never ran Python, or if it already walks its stack.
    pub(crate) fn here(&self) -> Found {
        // A destructor of a thread that ends may free memory, and then there is nothing noted.
        let noted = NOTED.try_with(|noted| {
            let noted = noted.borrow();
            let (places, found) = noted.as_ref()?;
            std::ptr::eq(&raw const **places, self).then(|| found.clone())
        });
        noted.ok().flatten().or_else(|| self.look()).unwrap_or_default()
    }

    /// Locations as text.
    pub(crate) fn frames_of(&self, numbers: &[u32]) -> Vec<Frame> {
        let table = self.table();
        let frame = |number: &u32| table.frames.get(*number as usize).cloned();
        numbers.iter().filter_map(frame).collect()
    }

    /// No Python code runs while it is held.
    fn table(&self) -> MutexGuard<'_, LocationTable> {
        // Entries are added completely, so a panic leaves the table valid.
        self.table.get().lock()
    }

    fn look(&self) -> Option<Found> {
        let _alone = Looking::begin()?;
        let found = interpreter::if_known(|py| {
            let places = interpreter::callers(py).ok()?;
            // If PyTorch's functions fail, their frames are omitted.
            let mut callers = self.number_told(torch_frames::script(py).unwrap_or_default());
            callers.extend(self.number_all(py, places));
            let forward = self.number_told(torch_frames::forward(py).unwrap_or_default());
            Some(Found { callers, forward })
        });
        found.flatten()
    }

    fn number_told(&self, frames: Vec<Frame>) -> Vec<u32> {
        if frames.is_empty() {
            return Vec::new();
        }
        let mut table = self.table();
        let LocationTable { told, frames: known, .. } = &mut *table;
        let numbers =
            frames.into_iter().map(|frame| *told.entry(frame).or_insert_with_key(|frame| push(known, frame.clone())));
        numbers.collect()
    }

    fn number_all(&self, py: Python<'_>, places: Vec<Place>) -> Vec<u32> {
        let known: Vec<Option<u32>> = {
            let table = self.table();
            let known = places.iter().map(|it| table.numbers.get(&it.key()).copied());
            known.collect()
        };
        let numbers = places.into_iter().zip(known).map(|(place, known)| {
            known.unwrap_or_else(|| {
                let key = place.key();
                let (frame, code) = place.describe(py);
                self.add(key, frame, code)
            })
        });
        numbers.collect()
    }

    fn add(&self, key: (usize, i64), frame: Frame, code: Py<PyAny>) -> u32 {
        let mut table = self.table();
        if let Some(known) = table.numbers.get(&key) {
            return *known;
        }
        let number = push(&mut table.frames, frame);
        table.codes.push(code);
        table.numbers.insert(key, number);
        number
    }
}

/// Adds a frame, and returns its number.
fn push(frames: &mut Vec<Frame>, frame: Frame) -> u32 {
    // No program has four billion locations; any further ones share the last number.
    let number = u32::try_from(frames.len()).unwrap_or(u32::MAX);
    frames.push(frame);
    number
}

impl Drop for Places {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Relaxed);
        // The last history may have ended under locks of the allocator.
        interpreter::drop_later(mem::take(&mut self.table().codes));
    }
}

/// Keeps this thread's stack while the thread releases the GIL.
pub(crate) struct Noted(());

impl Noted {
    /// Records the thread's stack if a history needs it.
    pub(crate) fn here() -> Option<Self> {
        let places = Places::of_histories()?;
        let found = places.look()?;
        let noted = NOTED.try_with(|noted| noted.replace(Some((places, found)))).ok()?;
        drop(noted);
        Some(Self(()))
    }

    /// Calls `work`, which runs code of the program: events in it have their own stacks.
    pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
        let noted = NOTED.try_with(RefCell::take);
        let done = work();
        let _ = NOTED.try_with(|place| place.replace(noted.ok().flatten()));
        done
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let noted = NOTED.try_with(RefCell::take);
        drop(noted);
    }
}

/// Prevents this thread from walking its stack again.
struct Looking(());

impl Looking {
    fn begin() -> Option<Self> {
        (!LOOKING.replace(true)).then(|| Self(()))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        LOOKING.set(false);
    }
}

//! Places in Python code, each known by a number.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cachette::history::Frame;
use pyo3::prelude::*;

use crate::interpreter::{self, Place};

/// Every place that was ever met.
#[derive(Default)]
struct Table {
    /// Numbers by code and instruction.
    numbers: HashMap<(usize, i64), u32>,
    /// Places in words: a reader needs no interpreter.
    frames: Vec<Frame>,
    /// The code of every key above, kept for ever so that no other code takes its address.
    codes: Vec<Py<PyAny>>,
}

thread_local! {
    /// What a call of this package has found before it gave up the interpreter's lock.
    static NOTED: Cell<Option<Vec<u32>>> = const { Cell::new(None) };
    /// Whether the thread is looking: that may free memory, which must not look in turn.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// No code of Python's runs while it is held.
fn table() -> MutexGuard<'static, Table> {
    static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);
    // Entries are added whole, so a panic leaves the table sound.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The callers of this thread, innermost first; none if it does not hold the interpreter's lock and nothing was noted.
pub(crate) fn callers() -> Vec<u32> {
    let noted = NOTED.take();
    if noted.is_some() {
        NOTED.set(noted.clone());
    }
    noted.or_else(look).unwrap_or_default()
}

/// Some places in words.
pub(crate) fn frames_of(numbers: &[u32]) -> Vec<Frame> {
    let table = table();
    let frame = |number: &u32| table.frames.get(*number as usize).cloned();
    numbers.iter().filter_map(frame).collect()
}

/// While it lives, this thread is where it was made, although it gives up the interpreter's lock.
pub(crate) struct Noted(());

impl Noted {
    pub(crate) fn here() -> Self {
        NOTED.set(look());
        Self(())
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        NOTED.set(None);
    }
}

fn look() -> Option<Vec<u32>> {
    let _alone = Looking::begin()?;
    let found = interpreter::if_known(|py| {
        let places = interpreter::callers(py).ok()?;
        Some(number_all(py, places))
    });
    found.flatten()
}

/// While it lives, this thread does not look again.
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

fn number_all(py: Python<'_>, places: Vec<Place>) -> Vec<u32> {
    let known: Vec<Option<u32>> = {
        let table = table();
        let known = places
            .iter()
            .map(|it| table.numbers.get(&it.key()).copied());
        known.collect()
    };
    let numbers = places.into_iter().zip(known).map(|(place, known)| {
        known.unwrap_or_else(|| {
            let key = place.key();
            let (frame, code) = place.describe(py);
            add(key, frame, code)
        })
    });
    numbers.collect()
}

fn add(key: (usize, i64), frame: Frame, code: Py<PyAny>) -> u32 {
    let mut table = table();
    if let Some(known) = table.numbers.get(&key) {
        return *known;
    }
    // Four billion places are more than any program has; beyond them all are the last.
    let number = u32::try_from(table.frames.len()).unwrap_or(u32::MAX);
    table.frames.push(frame);
    table.codes.push(code);
    table.numbers.insert(key, number);
    number
}

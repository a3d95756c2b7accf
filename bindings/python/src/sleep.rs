//! Sleep mode for Python.

use cachette::pool::PoolProblem;
use cachette::sleep::{Contents, Progress, SleepStats};
use cachette::{Allocator, Error, Pool};
use pyo3::prelude::*;

use crate::{calls, error};

/// The result of a sleep; a dictionary in Python.
#[derive(Default, IntoPyObject)]
pub(crate) struct SleptEntry {
    released: u64,
    saved: u64,
}

impl SleptEntry {
    fn add(&mut self, slept: SleepStats) {
        self.released += slept.released;
        self.saved += slept.saved;
    }
}

fn contents(keep: bool) -> Contents {
    if keep { Contents::Keep } else { Contents::Discard }
}

/// Puts a pool to sleep, and calls `progress(done, total)` during that.
pub(crate) fn sleep(py: Python<'_>, pool: &Pool, keep: bool, progress: Option<Py<PyAny>>) -> PyResult<SleptEntry> {
    let slept = calls::detached(py, move || pool.sleep_with(contents(keep), |done| tell(progress.as_ref(), done)))?;
    let mut entry = SleptEntry::default();
    entry.add(slept.map_err(error::of_allocator)?);
    Ok(entry)
}

/// Wakes a pool, and calls `progress(done, total)` during that. Returns the bytes of its memory.
pub(crate) fn wake(py: Python<'_>, pool: &Pool, progress: Option<Py<PyAny>>) -> PyResult<u64> {
    calls::detached(py, move || pool.wake_with(|done| tell(progress.as_ref(), done)))?.map_err(error::of_allocator)
}

/// Puts every pool with a tag to sleep, on all `allocators`; all of them or none.
pub(crate) fn sleep_tagged(py: Python<'_>, allocators: &[&Allocator], tag: &str, keep: bool) -> PyResult<SleptEntry> {
    calls::detached(py, || {
        let mut entry = SleptEntry::default();
        let mut asleep: Vec<&Allocator> = Vec::new();
        for allocator in with_tag(allocators, |it| it.sleep_tagged(tag, contents(keep))) {
            match allocator {
                Ok((allocator, slept)) => {
                    entry.add(slept);
                    asleep.push(allocator);
                }
                Err(why) => {
                    // The caller gets the first failure, and can wake the pools that stay asleep later.
                    for allocator in asleep {
                        let _ = allocator.wake_tagged(tag);
                    }
                    return Err(why);
                }
            }
        }
        Ok(entry)
    })?
    .map_err(error::of_allocator)
}

/// Wakes every pool with a tag; returns the bytes of their memory.
pub(crate) fn wake_tagged(py: Python<'_>, allocators: &[&Allocator], tag: &str) -> PyResult<u64> {
    let wake = || with_tag(allocators, |it| it.wake_tagged(tag)).try_fold(0, |bytes, woken| Ok(bytes + woken?.1));
    calls::detached(py, wake)?.map_err(error::of_allocator)
}

/// Runs `work` for each allocator. It fails only if no allocator has a pool with the tag.
fn with_tag<'a, T>(
    allocators: &'a [&'a Allocator],
    work: impl Fn(&Allocator) -> Result<T, Error>,
) -> impl Iterator<Item = Result<(&'a Allocator, T), Error>> {
    let mut left = allocators.len();
    let mut found = false;
    allocators.iter().filter_map(move |allocator| {
        left -= 1;
        let done = work(allocator);
        let why = PoolProblem::NoTag;
        if matches!(&done, Err(Error::Pool { why: problem, .. }) if *problem == why) && (found || left > 0) {
            return None;
        }
        found = true;
        Some(done.map(|done| (*allocator, done)))
    })
}

/// Reports the progress.
fn tell(progress: Option<&Py<PyAny>>, so_far: Progress) {
    if let Some(progress) = progress {
        calls::call_back(progress, (so_far.done, so_far.total));
    }
}

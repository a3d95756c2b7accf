//! Expectations that several groups share.

use std::fmt::Debug;
use std::thread;

use cachette_hal::{Error, ErrorKind, Result};

use super::{Gate, settle};
use crate::failure::{Stop, Verdict, ensure};

#[track_caller]
pub(crate) fn refuse<T>(result: Result<T>, kinds: &[ErrorKind], what: &str) -> Verdict<Error> {
    match result {
        Ok(accepted) => {
            drop(accepted);
            Err(Stop::failed(format!("{what} was accepted, promised {kinds:?}")))
        }
        Err(error) if kinds.contains(&error.kind()) => Ok(error),
        Err(error) => {
            let kind = error.kind();
            Err(Stop::failed(format!("{what}: found {kind:?}, promised {kinds:?} ({error})")))
        }
    }
}

/// Checks that no two ranges, each an address and a size, share a byte.
#[track_caller]
pub(crate) fn none_overlap(ranges: impl IntoIterator<Item = (u64, u64)>) -> Verdict {
    let mut ranges: Vec<_> = ranges.into_iter().collect();
    ranges.sort_unstable();
    let meeting = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
    ensure!(meeting.is_none(), "ranges overlap: {meeting:#x?}")
}

/// Measures up to eight times until a measurement holds, because other processes also use the device.
#[track_caller]
pub(crate) fn eventually<T: Debug>(what: &str, measure: impl Fn() -> Verdict<(bool, T)>) -> Verdict {
    let mut found = Vec::new();
    for _ in 0..8 {
        match measure()? {
            (true, _) => return Ok(()),
            (false, measured) => found.push(measured),
        }
    }
    Err(Stop::failed(format!("{what}: {found:?}")))
}

/// The result of a thread that was joined; a panic there fails the case.
#[track_caller]
pub(crate) fn joined<T>(result: thread::Result<T>, what: &str) -> Verdict<T> {
    match result {
        Ok(result) => Ok(result),
        Err(_) => Err(Stop::failed(format!("{what} panicked"))),
    }
}

/// Checks that a call does not return before the gate is released, and returns after.
pub(crate) fn blocks_until_released(gate: &Gate, call: impl FnOnce() -> Result<()> + Send) -> Verdict {
    thread::scope(|scope| {
        let waiter = scope.spawn(call);
        settle();
        let early = waiter.is_finished();
        gate.release();
        let result = waiter.join();
        ensure!(!early, "the call returned while the stream was held")?;
        Ok(joined(result, "the call")??)
    })
}

//! Expectations that several groups share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cachette_hal::{Error, ErrorKind, Result};

use super::{Gate, settle};
use crate::failure::{Stop, Verdict, ensure};

/// Checks that a call failed with one of `kinds`.
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

/// Checks that a call does not return before the gate is released, and does so after.
pub(crate) fn blocks_until_released(gate: &Gate, call: impl FnOnce() -> Result<()> + Send) -> Verdict {
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let result = call();
            // Release pairs with the acquire below, though the flag publishes nothing but itself.
            returned.store(true, Ordering::Release);
            result
        });
        settle();
        let early = returned.load(Ordering::Acquire);
        gate.release();
        let result = waiter.join();
        ensure!(!early, "the call returned while the stream was held");
        match result {
            Ok(result) => Ok(result?),
            Err(_) => Err(Stop::failed("the call panicked")),
        }
    })
}

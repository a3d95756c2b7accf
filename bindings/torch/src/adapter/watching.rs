//! Callbacks for events, out-of-memory and memory pressure.

use std::sync::Arc;

use cachette::history::{self, HistoryOptions, Level};
use cachette::{OutOfMemory, TraceAction};
use cachette_process as process;

use super::annotations::words;
use super::contents::{EventEntry, Text, event_now};
use super::contexts::{CaptureContext, ContextStacks};
use crate::arguments;
use crate::arguments::User;
use crate::entry::{guarded, or_raise};

/// Registers a callback for out-of-memory errors. Its arguments are the device, the requested bytes, its total bytes or
/// the limit, and its free bytes.
///
/// # Safety
///
/// 1. `observer` may be called with `user` by any thread, as long as the process lives, and does not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_on_out_of_memory(
    observer: unsafe extern "C" fn(user: User, device: i64, asked: u64, total: u64, free: u64),
    user: User,
) {
    process::on_out_of_memory(move |report: &OutOfMemory| {
        let (device, asked, total, free) = arguments::observed(report);
        // SAFETY: 1. is the caller's promise.
        unsafe { observer(whole(user), device.into(), asked, total, free) };
    });
}

/// Registers a callback for requests that are rejected without a driver call (`throw_on_cudamalloc_oom`). Its arguments
/// are the device, the requested bytes, the reserved bytes, and its total bytes.
///
/// # Safety
///
/// 1. `observer` may be called with `user` by any thread, as long as the process lives, and does not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_on_rejection(
    observer: unsafe extern "C" fn(user: User, device: i64, asked: u64, reserved: u64, total: u64),
    user: User,
) {
    process::on_out_of_memory(move |report: &OutOfMemory| {
        if !report.rejected {
            return;
        }
        let (device, total) = (report.device.0.into(), report.total.unwrap_or(0));
        let (asked, reserved) = (report.segment, report.reserved);
        // SAFETY: 1. is the caller's promise.
        unsafe { observer(whole(user), device, asked, reserved, total) };
    });
}

/// Registers a callback for every event.
///
/// # Safety
///
/// 1. `tracker` may be called with `user` by any thread, as long as the process lives, and does not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_track(
    tracker: unsafe extern "C" fn(user: User, event: *const EventEntry),
    user: User,
) {
    process::track(move |device, event| {
        // To read the metadata takes a lock, and only this event is about it.
        let annotates = event.action == TraceAction::Annotate;
        let metadata = if annotates { history::metadata() } else { String::new() };
        let entry = event_now(device, event, &metadata);
        // SAFETY: 1. is the caller's promise.
        unsafe { tracker(whole(user), &raw const entry) };
    });
}

/// Registers a callback for memory pressure, called before a device is asked for memory. It returns whether it freed
/// memory.
///
/// # Safety
///
/// 1. `reliever` may be called by any thread, as long as the process lives, and does not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_on_pressure(reliever: unsafe extern "C" fn() -> bool) {
    process::on_pressure(move || {
        // SAFETY: 1. is the caller's promise.
        unsafe { reliever() }
    });
}

/// The closure must capture all of `user`, which is `Send`, and not the pointer inside, which is not.
const fn whole(user: User) -> User {
    user
}

/// Starts to record a history; `false` stops it and deletes the events.
///
/// `level` selects what has a stack: 0 nothing, 1 live memory, 2 allocations, 3 everything. `capture` is called once for
/// each stack, on the thread that has it. `skip` has the names of events to omit, separated by commas.
///
/// # Safety
///
/// 1. The text may be read.
/// 2. `capture` may be called by any thread, as long as the process lives, and does not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_record_history(
    on: bool,
    level: i32,
    entries: u64,
    clear: bool,
    capture: Option<CaptureContext>,
    skip: Text,
) {
    // SAFETY: 1. is the caller's promise.
    let skip = unsafe { words(&skip) };
    or_raise(|| {
        let level = match level {
            0 => Level::None,
            1 => Level::State,
            2 => Level::Alloc,
            _ => Level::All,
        };
        let options = match capture.filter(|_| level != Level::None) {
            Some(capture) => HistoryOptions::new().stack_source(Arc::new(ContextStacks::new(capture))),
            None => HistoryOptions::new().stacks(false),
        };
        let options = options
            .level(level)
            .max_entries(arguments::history_entries(entries)?)
            .clear(clear)
            .skip_named(skip.split(',').filter(|name| !name.is_empty()))?;
        process::record_history(on.then_some(options));
        Ok(())
    });
}

/// Whether a history is recorded.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_records_history() -> bool {
    guarded(|| Ok(process::records_history())).unwrap_or(false)
}

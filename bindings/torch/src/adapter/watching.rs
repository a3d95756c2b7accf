//! Callbacks for events, out-of-memory and memory pressure.

use cachette::OutOfMemory;
use cachette::history::{HistoryOptions, Level};

use super::User;
use super::contents::{EventEntry, Text, event_now};
use super::words::words;
use crate::entry::{guarded, or_raise};
use crate::state;

/// Calls `observer` with the device, the bytes asked of it, its bytes in all or the limit, and its free bytes, before a
/// request ends in out-of-memory.
///
/// # Safety
///
/// 1. `observer` may be called with `user` by any thread, as long as the process lives, and throws nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_on_out_of_memory(
    observer: unsafe extern "C" fn(user: User, device: i64, asked: u64, total: u64, free: u64),
    user: User,
) {
    state::on_out_of_memory(move |report: &OutOfMemory| {
        let (device, asked, total, free) = state::observed(report);
        // SAFETY: 1. is the caller's promise.
        unsafe { observer(whole(user), device.into(), asked, total, free) };
    });
}

/// Calls `observer` with the device, the bytes asked of it, the bytes that are reserved, and its bytes in all, when a request
/// is rejected before the driver is asked (`throw_on_cudamalloc_oom`).
///
/// # Safety
///
/// 1. `observer` may be called with `user` by any thread, as long as the process lives, and throws nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_on_rejection(
    observer: unsafe extern "C" fn(user: User, device: i64, asked: u64, reserved: u64, total: u64),
    user: User,
) {
    state::on_out_of_memory(move |report: &OutOfMemory| {
        if !report.rejected {
            return;
        }
        let (device, total) = (report.device.0.into(), report.total.unwrap_or(0));
        let (asked, reserved) = (report.segment, report.reserved);
        // SAFETY: 1. is the caller's promise.
        unsafe { observer(whole(user), device, asked, reserved, total) };
    });
}

/// Calls `tracker` with everything that happens to memory, from now on.
///
/// # Safety
///
/// 1. `tracker` may be called with `user` by any thread, as long as the process lives, and throws nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_track(
    tracker: unsafe extern "C" fn(user: User, event: *const EventEntry),
    user: User,
) {
    state::track(move |device, event| {
        let entry = event_now(device, event);
        // SAFETY: 1. is the caller's promise.
        unsafe { tracker(whole(user), &raw const entry) };
    });
}

/// Calls `reliever` when memory is wanting, before more is got from a device; it says whether it freed any.
///
/// # Safety
///
/// 1. `reliever` may be called by any thread, as long as the process lives, and throws nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_on_pressure(reliever: unsafe extern "C" fn() -> bool) {
    state::on_pressure(move || {
        // SAFETY: 1. is the caller's promise.
        unsafe { reliever() }
    });
}

/// A whole closure takes the whole of `user`, and not the pointer in it, which is not to be sent.
const fn whole(user: User) -> User {
    user
}

/// Records what happens to memory from now on, with native callers; `false` stops that and forgets everything.
///
/// `level` is for what callers are asked: 0 for nothing, 1 for what is held, 2 for allocations, 3 for everything. `skip`
/// names events to leave out, with commas between.
///
/// # Safety
///
/// 1. The text may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_record_history(
    on: bool,
    level: i32,
    entries: u64,
    clear: bool,
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
        let options = HistoryOptions::new()
            .level(level)
            .stacks(level != Level::None)
            .max_entries(state::history_entries(entries)?)
            .clear(clear)
            .skip_named(skip.split(',').filter(|name| !name.is_empty()))?;
        state::record_history(on.then_some(options));
        Ok(())
    });
}

/// Whether a history is recorded.
///
/// # Safety
///
/// There is nothing to promise.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_records_history() -> bool {
    guarded(|| Ok(state::records_history())).unwrap_or(false)
}

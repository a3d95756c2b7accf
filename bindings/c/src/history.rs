//! What happened to memory, kept for later.

use std::ffi::c_char;

use cachette::history::{self, HistoryOptions, Level};

use crate::allocator::AllocatorHandle;
use crate::failure::Failure;
use crate::given::{handle, out};
use crate::guard::guard;
use crate::status::Status;
use crate::structure::{self, Structure};
use crate::text;

/// The most events that can be asked for.
const MOST_ENTRIES: u64 = 100_000_000;

/// A level of a history: everything has a stack, the end of an allocation where it ended.
pub const CACHETTE_HISTORY_ALL: u32 = 0;

/// A level of a history: every event of an allocation has the stack where it began.
pub const CACHETTE_HISTORY_ALLOC: u32 = 1;

/// A level of a history: what is allocated has a stack, and no event does.
pub const CACHETTE_HISTORY_STATE: u32 = 2;

/// A level of a history: nothing has a stack.
pub const CACHETTE_HISTORY_NONE: u32 = 3;

/// A flag of a history: what was recorded before is forgotten.
pub const CACHETTE_HISTORY_CLEAR: u32 = 1;

/// How a history is recorded. Set all of it to zero first; what is zero is the default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GivenHistory {
    /// How many events are kept, 96 bytes each from the start; 0 for 100,000.
    pub max_entries: u64,
    /// One of the levels above.
    pub level: u32,
    /// `CACHETTE_HISTORY_CLEAR`, or 0.
    pub flags: u32,
    /// Names of actions to leave out, with commas between them, such as `"free_completed,snapshot"`; NULL for none.
    pub skip: *const c_char,
}

impl Structure for GivenHistory {
    const FIRST_SIZE: usize = 24;
}

impl GivenHistory {
    /// The options as the allocator takes them.
    ///
    /// # Safety
    ///
    /// Promise 3 of the crate.
    unsafe fn make(&self) -> Result<HistoryOptions, Failure> {
        let level = match self.level {
            CACHETTE_HISTORY_ALL => Level::All,
            CACHETTE_HISTORY_ALLOC => Level::Alloc,
            CACHETTE_HISTORY_STATE => Level::State,
            CACHETTE_HISTORY_NONE => Level::None,
            other => {
                return Err(Failure::argument(format!(
                    "`level` is {other}, which is no level of a history; use one of CACHETTE_HISTORY_ALL to _NONE"
                )));
            }
        };
        if self.flags & !CACHETTE_HISTORY_CLEAR != 0 {
            let flags = self.flags;
            return Err(Failure::argument(format!(
                "`flags` has {flags:#x}, and a history knows CACHETTE_HISTORY_CLEAR alone; use that or 0"
            )));
        }
        // SAFETY: 3. is the caller's promise.
        let skip = unsafe { text::optional(self.skip, "skip") }?.unwrap_or_default();
        let names = skip.split(',').map(str::trim);
        let options = HistoryOptions::new()
            .level(level)
            .clear(self.flags & CACHETTE_HISTORY_CLEAR != 0)
            .skip_named(names.filter(|name| !name.is_empty()))
            .map_err(|unknown| Failure::argument(format!("{unknown}; name events alone")))?;
        match self.max_entries {
            0 => Ok(options),
            entries if entries <= MOST_ENTRIES => Ok(options.max_entries(entries)),
            entries => Err(Failure::argument(format!(
                "`max_entries` is {entries}, and at most {MOST_ENTRIES} events are kept; ask for fewer"
            ))),
        }
    }
}

/// Records what happens to memory from now on. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// What was recorded before stays, unless it is to be forgotten. Stacks are those of the native callers.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_record_history(
    allocator: *mut AllocatorHandle,
    options: *const GivenHistory,
    size: usize,
) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        let options = if options.is_null() {
            HistoryOptions::new()
        } else {
            // SAFETY: 3. is the caller's promise; every field is a number or may be null.
            let given = unsafe { structure::read(options, size) }?;
            // SAFETY: 3. is the caller's promise.
            unsafe { given.make() }?
        };
        allocator.inner.record_history(options);
        Ok(())
    })
}

/// Records nothing any more, and forgets what was recorded.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stop_history(allocator: *mut AllocatorHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        allocator.inner.stop_history();
        Ok(())
    })
}

/// Writes whether a history is recorded.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_records_history(allocator: *const AllocatorHandle, out_records: *mut bool) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_records, false, "out_records") }?;
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        *out = allocator.inner.records_history();
        Ok(())
    })
}

/// Lets every event of this thread carry `text`, for all allocators and until it is set again; NULL is none.
///
/// Every different text is kept as long as the process, so it should name phases and not count steps.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_metadata(text: *const c_char) -> Status {
    guard(|| {
        // SAFETY: 3. is the caller's promise.
        let text = unsafe { text::optional(text, "text") }?;
        history::set_metadata(text.unwrap_or_default());
        Ok(())
    })
}

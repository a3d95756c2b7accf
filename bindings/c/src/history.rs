//! What happened to memory, kept for later.

use std::ffi::c_char;

use cachette::history::{self, HistoryOptions, Level};

use crate::allocator::AllocatorHandle;
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::{Readable, Structure};
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

// SAFETY: every field is a number, or a pointer that may be null.
unsafe impl Readable for GivenHistory {}

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
        let skip = unsafe { text::optional_text(self.skip, "skip") }?.unwrap_or_default();
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
#[doc = promises!("1 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_record_history(
    allocator: *mut AllocatorHandle,
    options: *const GivenHistory,
    size: usize,
) -> Status {
    call!([handle(allocator), optional_structure(options, size)], {
        let options = match options {
            None => HistoryOptions::new(),
            // SAFETY: 3. is the caller's promise.
            Some(options) => unsafe { options.make() }?,
        };
        allocator.inner.record_history(options);
    })
}

/// Records nothing any more, and forgets what was recorded.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stop_history(allocator: *mut AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.stop_history())
}

/// Writes whether a history is recorded.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_records_history(allocator: *const AllocatorHandle, out_records: *mut bool) -> Status {
    call!([out(out_records), handle(allocator)], *out_records = allocator.inner.records_history())
}

/// Lets every event of this thread carry `text`, for all allocators and until it is set again; NULL is none.
///
/// Every different text is kept as long as the process, so it should name phases and not count steps.
#[doc = promises!("3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_metadata(text: *const c_char) -> Status {
    call!([optional_text(text)], history::set_metadata(text.unwrap_or_default()))
}

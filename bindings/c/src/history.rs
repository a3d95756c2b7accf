//! Recording the history of memory.

use std::ffi::c_char;

use cachette::history::{self, HistoryOptions, Level};

use crate::allocator::AllocatorHandle;
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::{Readable, Structure};
use crate::text;

/// The maximum of `max_entries`.
const MOST_ENTRIES: u64 = 100_000_000;

/// A history level: every event has a stack; a free has the stack of the free.
pub const CACHETTE_HISTORY_ALL: u32 = 0;

/// A history level: every event of an allocation has the stack of its allocation.
pub const CACHETTE_HISTORY_ALLOC: u32 = 1;

/// A history level: live allocations have a stack, events have none.
pub const CACHETTE_HISTORY_STATE: u32 = 2;

/// A history level: no stacks.
pub const CACHETTE_HISTORY_NONE: u32 = 3;

/// A history flag: earlier events are deleted.
pub const CACHETTE_HISTORY_CLEAR: u32 = 1;

/// Options of a history. Set all of it to zero first; zero is the default of every field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GivenHistory {
    /// How many events are kept; 96 bytes each are allocated at once. 0 is 100,000.
    pub max_entries: u64,
    /// One of the levels above.
    pub level: u32,
    /// `CACHETTE_HISTORY_CLEAR`, or 0.
    pub flags: u32,
    /// Names of actions that are not recorded, separated by commas, such as `"free_completed,snapshot"`; NULL for none.
    pub skip: *const c_char,
}

impl Structure for GivenHistory {
    const FIRST_SIZE: usize = 24;
}

// SAFETY: every field is a number, or a pointer that may be null.
unsafe impl Readable for GivenHistory {}

impl GivenHistory {
    /// The allocator's form of the options.
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
                    "`level` is {other}, which is not a history level; use one of CACHETTE_HISTORY_ALL to _NONE"
                )));
            }
        };
        if self.flags & !CACHETTE_HISTORY_CLEAR != 0 {
            let flags = self.flags;
            return Err(Failure::argument(format!(
                "`flags` has {flags:#x}, and only CACHETTE_HISTORY_CLEAR is allowed; use that or 0"
            )));
        }
        // SAFETY: 3. is the caller's promise.
        let skip = unsafe { text::optional_text(self.skip, "skip") }?.unwrap_or_default();
        let names = skip.split(',').map(str::trim);
        let options = HistoryOptions::new()
            .level(level)
            .clear(self.flags & CACHETTE_HISTORY_CLEAR != 0)
            .skip_named(names.filter(|name| !name.is_empty()))
            .map_err(|unknown| Failure::argument(format!("{unknown}; use names of events")))?;
        match self.max_entries {
            0 => Ok(options),
            entries if entries <= MOST_ENTRIES => Ok(options.max_entries(entries)),
            entries => Err(Failure::argument(format!(
                "`max_entries` is {entries}, and at most {MOST_ENTRIES} events are kept; ask for fewer"
            ))),
        }
    }
}

/// Starts to record events. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// Earlier events stay unless `CACHETTE_HISTORY_CLEAR` is set. Stacks are native ones.
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

/// Stops recording, and deletes the recorded events.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stop_history(allocator: *mut AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.stop_history())
}

/// Adds `text` to every event of this thread, for all allocators and until it is set again; NULL is an empty text.
///
/// Every distinct text is kept until the process ends, so use names of phases and not step numbers.
#[doc = promises!("3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_metadata(text: *const c_char) -> Status {
    call!([optional_text(text)], history::set_metadata(text.unwrap_or_default()))
}

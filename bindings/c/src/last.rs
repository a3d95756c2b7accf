//! The last error of a thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use cachette::OutOfMemory;

use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::Structure;

/// A figure that the driver did not report.
pub const CACHETTE_UNKNOWN: u64 = u64::MAX;

/// No limit.
pub const CACHETTE_NO_LIMIT: u64 = u64::MAX;

/// An out-of-memory failure: the figures at that time, in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OutOfMemoryFigures {
    /// The size that the caller requested.
    pub requested: u64,
    /// The size of the segment that was requested from the device.
    pub segment: u64,
    /// The device's memory, or `CACHETTE_UNKNOWN`.
    pub total: u64,
    /// The device's free memory, or `CACHETTE_UNKNOWN`.
    pub free: u64,
    /// The limit of this allocator, or `CACHETTE_NO_LIMIT`.
    pub limit: u64,
    /// Bytes that callers hold.
    pub allocated: u64,
    /// Bytes that the allocator holds from the device.
    pub reserved: u64,
    /// Bytes that callers freed and other streams still use.
    pub pending: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// The number of the device.
    pub device: u32,
    /// Whether the limit refused the request, before the device was asked.
    pub rejected: bool,
    /// Whether the configuration has `never_block:True`.
    pub never_block: bool,
}

impl Structure for OutOfMemoryFigures {
    const FIRST_SIZE: usize = 80;
}

impl From<&OutOfMemory> for OutOfMemoryFigures {
    fn from(report: &OutOfMemory) -> Self {
        Self {
            requested: report.requested,
            segment: report.segment,
            total: report.total.unwrap_or(CACHETTE_UNKNOWN),
            free: report.free.unwrap_or(CACHETTE_UNKNOWN),
            limit: report.limit.unwrap_or(CACHETTE_NO_LIMIT),
            allocated: report.allocated,
            reserved: report.reserved,
            pending: report.pending,
            largest_free: report.largest_free,
            device: report.device.0,
            rejected: report.rejected,
            never_block: report.never_block,
        }
    }
}

#[derive(Default)]
struct Last {
    /// `None` until the text of `report` is read, which names stacks.
    text: Option<CString>,
    report: Option<Box<OutOfMemory>>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

fn text_for_c(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// Stores a failure as the thread's last error.
pub(crate) fn keep(failure: Failure) {
    let (text, figures) = failure.into_parts();
    // A configuration or a driver's text may contain a zero, which would truncate the text.
    let text = figures.is_none().then(|| text_for_c(&text));
    // While the thread ends its storage may be gone; then no call can read the error either.
    let _ = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        last.text = text;
        if figures.is_some() {
            last.report = figures;
        }
    });
}

/// The text of the last call that failed on this thread: what happened, and what to do about it.
///
/// It is empty if no call has failed. The library owns it; it is valid until the next call that fails on this thread.
/// Successful calls do not change it.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_last_error() -> *const c_char {
    let read = |last: &RefCell<Last>| {
        let Last { text, report } = &mut *last.borrow_mut();
        let report_text = || report.as_ref().map_or_else(String::new, ToString::to_string);
        text.get_or_insert_with(|| text_for_c(&report_text())).as_ptr()
    };
    LAST.try_with(read).unwrap_or(c"".as_ptr())
}

/// The figures of the last request of this thread that ran out of memory.
///
/// Returns `CACHETTE_ERROR_NOT_FOUND` if there was none. `size` is `sizeof *out`.
#[doc = promises!("2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_last_out_of_memory(out: *mut OutOfMemoryFigures, size: usize) -> Status {
    call!([structure(out, size)], out.write(&of_report(|report| OutOfMemoryFigures::from(report))?))
}

/// Writes the report of that request as text: the figures, the contents of every pool, the top allocation sites if a
/// history is recorded, and advice.
///
/// It is written with a final zero into a buffer of `capacity` bytes, with the number of bytes needed. Pass NULL and 0
/// to get only that number. Returns `CACHETTE_ERROR_NOT_FOUND` if there was no such request.
#[doc = promises!("2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_last_out_of_memory_text(
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> Status {
    call!([buffer(buffer, capacity, out_needed)], buffer.write(&of_report(ToString::to_string)?)?)
}

/// Reads the report of the last request of this thread that ran out of memory.
fn of_report<T>(ask: impl FnOnce(&OutOfMemory) -> T) -> Result<T, Failure> {
    LAST.with_borrow(|last| last.report.as_deref().map(ask)).ok_or_else(|| {
        let text = "no request of this thread has run out of memory; ask after CACHETTE_ERROR_OUT_OF_MEMORY";
        Failure::new(Status::NotFound, text)
    })
}

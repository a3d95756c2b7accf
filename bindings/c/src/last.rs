//! What failed last on a thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use cachette::OutOfMemory;

use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::Structure;

/// Stands for a figure that the driver would not say.
pub const CACHETTE_UNKNOWN: u64 = u64::MAX;

/// Stands for a bound that is not there.
pub const CACHETTE_NO_LIMIT: u64 = u64::MAX;

/// A request that failed for want of memory, with the figures of that moment; all in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OutOfMemoryFigures {
    /// What the caller asked for.
    pub requested: u64,
    /// What was asked of the device for it.
    pub segment: u64,
    /// The device's memory, or `CACHETTE_UNKNOWN`.
    pub total: u64,
    /// What of it is free, or `CACHETTE_UNKNOWN`.
    pub free: u64,
    /// What this allocator may hold, or `CACHETTE_NO_LIMIT`.
    pub limit: u64,
    /// What callers hold.
    pub allocated: u64,
    /// What is held from the device.
    pub reserved: u64,
    /// What callers freed and other streams still use.
    pub pending: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// The number of the device.
    pub device: u32,
    /// Whether the request was refused because of the limit, without asking the device.
    pub rejected: bool,
    /// Whether the configuration forbids to wait for the device.
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
    text: CString,
    report: Option<Box<OutOfMemory>>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Keeps a failure for its thread.
pub(crate) fn keep(failure: Failure) {
    let (text, figures) = failure.into_parts();
    // A configuration or a driver's text may have a zero inside, which would end it early.
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // At the end of the thread there is nobody to ask any more.
    let _ = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        last.text = text;
        if figures.is_some() {
            last.report = figures;
        }
    });
}

/// What the last call that failed on this thread has to say: what happened, and what to do about it.
///
/// An empty text if none has failed. It belongs to the library and is valid until the next call that fails on this
/// thread; one that succeeds leaves it as it is.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The figures of the last request that failed on this thread for want of memory.
///
/// `CACHETTE_ERROR_NOT_FOUND` if none has. `size` is `sizeof *out`.
#[doc = promises!("2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_last_out_of_memory(out: *mut OutOfMemoryFigures, size: usize) -> Status {
    call!([structure(out, size)], out.write(&of_report(|report| OutOfMemoryFigures::from(report))?))
}

/// Writes the report of that request in words: the figures, what every pool holds, where in the program most of it was
/// allocated if a history knows, and what could be done.
///
/// It is written with a final zero into a buffer of `capacity` bytes, and how many bytes it needs; NULL with a capacity
/// of 0 only asks. `CACHETTE_ERROR_NOT_FOUND` if there was no such request.
#[doc = promises!("2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_last_out_of_memory_text(
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> Status {
    call!([buffer(buffer, capacity, out_needed)], buffer.write(&of_report(ToString::to_string)?)?)
}

/// Asks the report of the last request of this thread that ran out of memory.
fn of_report<T>(ask: impl FnOnce(&OutOfMemory) -> T) -> Result<T, Failure> {
    LAST.with_borrow(|last| last.report.as_deref().map(ask)).ok_or_else(|| {
        let text = "no request of this thread has run out of memory; ask after CACHETTE_ERROR_OUT_OF_MEMORY";
        Failure::new(Status::NotFound, text)
    })
}

//! Callbacks for out-of-memory, memory pressure and events.

use std::ffi::c_void;

use cachette::{Notice, TraceEvent};

use crate::allocator::AllocatorHandle;
use crate::convert::{handle_of, pointer_to};
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::last::OutOfMemoryFigures;
use crate::status::Status;

/// What happened to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Action {
    /// A block was allocated.
    Alloc = 0,
    /// A caller freed a block.
    FreeRequested = 1,
    /// The block can be reused; later than the request if another stream still used it.
    FreeCompleted = 2,
    /// A segment was obtained from the device.
    SegmentAlloc = 3,
    /// A segment was released to the device.
    SegmentFree = 4,
    /// Memory was mapped into an elastic segment.
    SegmentMap = 5,
    /// Memory was unmapped from an elastic segment.
    SegmentUnmap = 6,
    /// A request failed.
    OutOfMemory = 7,
    /// Unknown to this version.
    Other = 8,
}

impl From<cachette::TraceAction> for Action {
    fn from(action: cachette::TraceAction) -> Self {
        match action {
            cachette::TraceAction::Alloc => Self::Alloc,
            cachette::TraceAction::FreeRequested => Self::FreeRequested,
            cachette::TraceAction::FreeCompleted => Self::FreeCompleted,
            cachette::TraceAction::SegmentAlloc => Self::SegmentAlloc,
            cachette::TraceAction::SegmentFree => Self::SegmentFree,
            cachette::TraceAction::SegmentMap => Self::SegmentMap,
            cachette::TraceAction::SegmentUnmap => Self::SegmentUnmap,
            cachette::TraceAction::OutOfMemory => Self::OutOfMemory,
            cachette::TraceAction::Snapshot | cachette::TraceAction::Annotate => Self::Other,
        }
    }
}

/// An event. Later versions may add fields at the end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// The address; NULL for `CACHETTE_ACTION_OUT_OF_MEMORY`.
    pub address: *mut c_void,
    /// The requested size, or the size of the segment.
    pub bytes: u64,
    /// The stream of the block or segment.
    pub stream: *mut c_void,
    /// For `CACHETTE_ACTION_OUT_OF_MEMORY`, the device's free bytes; otherwise 0.
    pub device_free: u64,
    /// What happened.
    pub action: Action,
}

impl From<&TraceEvent> for Event {
    fn from(event: &TraceEvent) -> Self {
        let action = event.action.into();
        let (address, device_free) = match action {
            Action::OutOfMemory => (0, event.address),
            _ => (event.address, 0),
        };
        Self { address: pointer_to(address), bytes: event.bytes, stream: handle_of(event.stream), device_free, action }
    }
}

/// Called when a request fails with out-of-memory, before it returns. The report is valid during the call; later
/// versions may add fields at its end.
pub type OutOfMemoryCallback = Option<unsafe extern "C" fn(user: *mut c_void, report: *const OutOfMemoryFigures)>;

/// Called to free memory; returns not 0 if it freed any. It may free memory of the allocator, and must not allocate.
pub type PressureCallback = Option<unsafe extern "C" fn(user: *mut c_void) -> i32>;

/// Called for every event. It must not call the allocator. The event is valid during the call.
pub type TrackCallback = Option<unsafe extern "C" fn(user: *mut c_void, event: *const Event)>;

/// Called when memory was put behind `bytes` bytes of addresses, or is about to leave them.
pub type RangeCallback = Option<unsafe extern "C" fn(user: *mut c_void, address: *mut c_void, bytes: u64)>;

/// The user pointer of a callback.
#[derive(Clone, Copy)]
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: the pointer is only passed on, to a function that may be called from any thread by promise 6.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    pub(crate) const fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// Registers a callback for requests that fail with out-of-memory.
///
/// For this and the next two functions: the callback runs on the thread of the request, with no lock held, and on
/// several threads at once. It must return normally, without an exception or `longjmp`. It stays registered until the
/// allocator is gone.
#[doc = promises!("1 and 6")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_on_out_of_memory(
    allocator: *mut AllocatorHandle,
    callback: OutOfMemoryCallback,
    user: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let (callback, user) = (present(callback)?, User(user));
        allocator.inner.on_out_of_memory(move |report| {
            let figures = OutOfMemoryFigures::from(report);
            // SAFETY: 6. is the promise of the caller who passed the callback.
            unsafe { callback(user.pointer(), &raw const figures) };
        });
    })
}

/// Registers a callback that is asked to free memory when no free block fits, before anything else is tried.
#[doc = promises!("1 and 6")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_on_pressure(
    allocator: *mut AllocatorHandle,
    callback: PressureCallback,
    user: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let (callback, user) = (present(callback)?, User(user));
        // SAFETY: 6. is the promise of the caller who passed the callback.
        allocator.inner.on_pressure(move || unsafe { callback(user.pointer()) } != 0);
    })
}

/// Registers a callback for every event.
#[doc = promises!("1 and 6")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_track(
    allocator: *mut AllocatorHandle,
    callback: TrackCallback,
    user: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let (callback, user) = (present(callback)?, User(user));
        allocator.inner.track(move |event| {
            let event = Event::from(event);
            // SAFETY: 6. is the promise of the caller who passed the callback.
            unsafe { callback(user.pointer(), &raw const event) };
        });
    })
}

/// Registers callbacks for ranges of addresses that get memory, and that are about to lose it; one of them may be NULL.
///
/// NCCL, UCX or NIXL can register memory in `mapped`, and end the registration in `unmapping`, which returns before the
/// memory leaves. They may be called inside any call that allocates or releases memory, and must not call the
/// allocator.
#[doc = promises!("1 and 6")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_on_ranges(
    allocator: *mut AllocatorHandle,
    mapped: RangeCallback,
    unmapping: RangeCallback,
    user: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        present(mapped.or(unmapping))?;
        let user = User(user);
        allocator.inner.on_notice(move |notice| {
            let (callback, address, bytes) = match *notice {
                Notice::Mapped { address, bytes } => (mapped, address, bytes),
                Notice::Unmapping { address, bytes } => (unmapping, address, bytes),
                _ => return,
            };
            if let Some(callback) = callback {
                // SAFETY: 6. is the promise of the caller who passed the callbacks.
                unsafe { callback(user.pointer(), pointer_to(address), bytes) };
            }
        });
    })
}

fn present<F>(callback: Option<F>) -> Result<F, Failure> {
    callback.ok_or_else(|| Failure::null("callback"))
}

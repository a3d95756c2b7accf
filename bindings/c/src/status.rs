//! The result of a call.

use std::ffi::c_char;

/// The result of a call. The numbers are stable; later versions may add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is invalid: a null pointer, a size, a flag, a text that is not UTF-8, an unknown name.
    InvalidArgument = 1,
    /// The configuration is invalid; the text shows where.
    InvalidConfig = 2,
    /// The backend's driver is missing, too old, or not part of this build.
    NoBackend = 3,
    /// The backend has no such device, or no backend has a device.
    NoDevice = 4,
    /// Out of memory. `cachette_last_out_of_memory` has the figures, except for pinned memory.
    OutOfMemory = 5,
    /// The request is larger than any device.
    TooLarge = 6,
    /// The address is not the start of live memory of this allocator.
    InvalidPointer = 7,
    /// The stream belongs to another allocator, or is unknown.
    ForeignStream = 8,
    /// The pool does not support the call, or does not exist.
    Pool = 9,
    /// The source of a pool failed, or cannot be loaded.
    Source = 10,
    /// The driver failed.
    Device = 11,
    /// The device, or everything on it, is lost; stop using it.
    DeviceLost = 12,
    /// The device or its driver lacks a feature.
    Unsupported = 13,
    /// A capture forbids the call, or was invalidated; end it and try again.
    Capture = 14,
    /// The buffer is too small; the size it needs was written.
    BufferTooSmall = 15,
    /// There is no such report.
    NotFound = 16,
    /// An invariant of the allocator is violated; please report it.
    Inconsistent = 17,
    /// Another error.
    Other = 18,
    /// The library panicked; please report it.
    Panic = 19,
    /// This process was forked from the one that opened the allocator; open another, or start workers by `exec`.
    Forked = 20,
    /// A file could not be written or read.
    File = 21,
}

impl Status {
    /// Every status with its description, in the order of the numbers.
    const ALL: [(Self, &'static std::ffi::CStr); 22] = [
        (Self::Ok, c"success"),
        (Self::InvalidArgument, c"invalid argument"),
        (Self::InvalidConfig, c"invalid configuration"),
        (Self::NoBackend, c"backend not available"),
        (Self::NoDevice, c"no such device"),
        (Self::OutOfMemory, c"out of memory"),
        (Self::TooLarge, c"larger than any device"),
        (Self::InvalidPointer, c"invalid device pointer"),
        (Self::ForeignStream, c"not a stream of this allocator"),
        (Self::Pool, c"the pool does not support this"),
        (Self::Source, c"the source failed"),
        (Self::Device, c"the driver failed"),
        (Self::DeviceLost, c"the device is lost"),
        (Self::Unsupported, c"not supported here"),
        (Self::Capture, c"a capture forbids this"),
        (Self::BufferTooSmall, c"the buffer is too small"),
        (Self::NotFound, c"not found"),
        (Self::Inconsistent, c"an invariant does not hold"),
        (Self::Other, c"unknown failure"),
        (Self::Panic, c"internal panic"),
        (Self::Forked, c"the allocator belongs to the parent process"),
        (Self::File, c"a file could not be written"),
    ];
}

/// A short description of a status, as a static string. `cachette_last_error` has the details.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_status_text(status: i32) -> *const c_char {
    let known = usize::try_from(status).ok().and_then(|at| Status::ALL.get(at));
    known.map_or(c"unknown status", |(_, text)| text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_listed_at_its_number() {
        for (number, (status, text)) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, number);
            assert!(!text.is_empty());
        }
    }
}

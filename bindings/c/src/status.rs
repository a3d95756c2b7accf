//! How a call went.

use std::ffi::c_char;

/// How a call went. Numbers keep their meaning; new ones may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// All is well.
    Ok = 0,
    /// The call was wrong: a null pointer, a size, a flag, a text that is not UTF-8, a name that does not exist.
    InvalidArgument = 1,
    /// The configuration has a mistake; the text shows where.
    InvalidConfig = 2,
    /// The backend's driver is not here, too old, or not part of this build.
    NoBackend = 3,
    /// The backend has no such device, or no backend has any.
    NoDevice = 4,
    /// There is no memory; `cachette_last_out_of_memory` has the figures, unless it was pinned memory.
    OutOfMemory = 5,
    /// The request is larger than any device.
    TooLarge = 6,
    /// The address is not the start of live memory of this allocator.
    InvalidPointer = 7,
    /// The stream is not one of this allocator.
    ForeignStream = 8,
    /// The pool cannot do that, or there is no such pool.
    Pool = 9,
    /// The source of a pool failed, or cannot be had.
    Source = 10,
    /// The driver failed.
    Device = 11,
    /// The device, or everything on it, is gone; stop using it.
    DeviceLost = 12,
    /// The device or its driver lacks what this needs.
    Unsupported = 13,
    /// A capture is in the way, or was broken; end it and try again.
    Capture = 14,
    /// The buffer is too small; how large it must be was written.
    BufferTooSmall = 15,
    /// What was asked for is not there.
    NotFound = 16,
    /// An invariant of the allocator does not hold; please report it.
    Inconsistent = 17,
    /// A failure that this version has no number for.
    Other = 18,
    /// The library has a fault; please report it.
    Panic = 19,
    /// This process was forked from the one that opened the allocator; open another, or start workers by `exec`.
    Forked = 20,
    /// A file could not be written.
    File = 21,
}

impl Status {
    /// Every status with its description, in the order of the numbers.
    const ALL: [(Self, &'static std::ffi::CStr); 22] = [
        (Self::Ok, c"all is well"),
        (Self::InvalidArgument, c"invalid argument"),
        (Self::InvalidConfig, c"invalid configuration"),
        (Self::NoBackend, c"no such backend here"),
        (Self::NoDevice, c"no such device"),
        (Self::OutOfMemory, c"out of memory"),
        (Self::TooLarge, c"larger than any device"),
        (Self::InvalidPointer, c"invalid device pointer"),
        (Self::ForeignStream, c"not a stream of this allocator"),
        (Self::Pool, c"the pool cannot do that"),
        (Self::Source, c"the source failed"),
        (Self::Device, c"the driver failed"),
        (Self::DeviceLost, c"the device is lost"),
        (Self::Unsupported, c"not supported here"),
        (Self::Capture, c"a capture is in the way"),
        (Self::BufferTooSmall, c"the buffer is too small"),
        (Self::NotFound, c"there is none"),
        (Self::Inconsistent, c"an invariant does not hold"),
        (Self::Other, c"unknown failure"),
        (Self::Panic, c"internal panic"),
        (Self::Forked, c"the allocator is a parent process's"),
        (Self::File, c"a file could not be written"),
    ];
}

/// A status in a few words, which live for ever. For what happened and what to do, see `cachette_last_error`.
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

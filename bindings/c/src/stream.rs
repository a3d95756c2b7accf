//! Streams, for programs that do not use the vendor's library.

use std::ffi::c_void;

use cachette::hal::{Device, Guarded, StreamRef};
use cachette::{Allocator, Stream};

use crate::allocator::AllocatorHandle;
use crate::convert::{handle_of, stream_of};
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::status::Status;

/// The streams that an allocator created for C.
///
/// An allocator keeps its streams as long as it lives, since each owns cached memory. So a destroyed stream is kept for
/// the next call that creates one.
#[derive(Debug, Default)]
pub(crate) struct OwnStreams {
    lists: Guarded<Lists>,
}

/// No stream is in both.
#[derive(Debug, Default)]
struct Lists {
    used: Vec<Stream>,
    idle: Vec<Stream>,
}

impl OwnStreams {
    fn create(&self, allocator: &Allocator) -> Result<StreamRef, Failure> {
        let idle = self.lists.lock().idle.pop();
        let stream = idle.map_or_else(|| allocator.create_stream(), Ok)?;
        let raw = stream.handle();
        self.lists.lock().used.push(stream);
        Ok(raw)
    }

    fn destroy(&self, raw: StreamRef) -> Result<(), Failure> {
        let stream = self.take_used(raw).ok_or_else(|| {
            let text = "the stream was not created by this allocator, or is destroyed; destroy it where it was created";
            Failure::new(Status::ForeignStream, text)
        })?;
        let idle = stream.synchronize();
        let mut lists = self.lists.lock();
        if idle.is_ok() {
            lists.idle.push(stream);
        } else {
            lists.used.push(stream);
        }
        Ok(idle?)
    }

    fn take_used(&self, raw: StreamRef) -> Option<Stream> {
        let used = &mut self.lists.lock().used;
        let at = used.iter().position(|stream| stream.handle() == raw)?;
        Some(used.swap_remove(at))
    }
}

/// Creates a non-blocking stream: it does not wait for the default stream. The handle is a `CUstream` or a
/// `hipStream_t`, valid until it is destroyed or the allocator is gone.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stream_create(
    allocator: *mut AllocatorHandle,
    out_stream: *mut *mut c_void,
) -> Status {
    call!([out(out_stream), handle(allocator)], *out_stream = handle_of(allocator.streams.create(&allocator.inner)?))
}

/// Waits for a stream of `cachette_stream_create`, and destroys it. NULL is ignored.
///
/// Memory that was allocated on it stays valid. The allocator keeps the stream for later calls of
/// `cachette_stream_create`.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stream_destroy(allocator: *mut AllocatorHandle, stream: *mut c_void) -> Status {
    call!([handle(allocator)], {
        if !stream.is_null() {
            allocator.streams.destroy(stream_of(stream))?;
        }
    })
}

/// Waits for the work that is queued in a stream.
#[doc = promises!("1 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stream_synchronize(allocator: *mut AllocatorHandle, stream: *mut c_void) -> Status {
    call!([handle(allocator)], {
        // SAFETY: 4. is the caller's promise.
        unsafe { allocator.inner.device().synchronize(stream_of(stream)) }?;
    })
}

//! Stream captures that allocate from a pool, and their graphs.

use std::ffi::c_void;

use cachette::Stream;
use cachette::hal::CaptureMode;
use cachette::pool::{Capture, Graph};

use crate::convert::stream_of;
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::handle::{destroy, from_handle, into_handle, out};
use crate::pool::PoolHandle;
use crate::status::Status;

/// A capture mode: no thread may make calls that could wait for the device.
pub const CACHETTE_CAPTURE_GLOBAL: u32 = 0;

/// A capture mode: the thread that began the capture may not make such calls.
pub const CACHETTE_CAPTURE_THREAD_LOCAL: u32 = 1;

/// A capture mode: all calls are allowed.
pub const CACHETTE_CAPTURE_RELAXED: u32 = 2;

/// A capture in progress.
#[derive(Debug)]
pub struct CaptureHandle {
    inner: Capture,
}

/// A captured graph. Its memory stays reserved in its pool until the last graph of the pool is destroyed.
#[derive(Debug)]
pub struct GraphHandle {
    inner: Graph,
}

/// Begins to capture a stream other than the default one. The pool serves the requests of all streams that are part of
/// the capture. `mode` is `CACHETTE_CAPTURE_GLOBAL`, `CACHETTE_CAPTURE_THREAD_LOCAL` or `CACHETTE_CAPTURE_RELAXED`.
///
/// End it with `cachette_capture_end` or `cachette_capture_abandon`.
#[doc = promises!("1, 2 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_begin_capture(
    pool: *mut PoolHandle,
    stream: *mut c_void,
    mode: u32,
    out_capture: *mut *mut CaptureHandle,
) -> Status {
    call!([out(out_capture), handle(pool)], {
        let mode = mode_of(mode)?;
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { pool.stream(stream) }?;
        *out_capture = into_handle(CaptureHandle { inner: pool.inner.begin_capture(&stream, mode)? });
    })
}

fn mode_of(mode: u32) -> Result<CaptureMode, Failure> {
    match mode {
        CACHETTE_CAPTURE_GLOBAL => Ok(CaptureMode::Global),
        CACHETTE_CAPTURE_THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
        CACHETTE_CAPTURE_RELAXED => Ok(CaptureMode::Relaxed),
        _ => Err(Failure::argument(format!("{mode} is not a capture mode; use a CACHETTE_CAPTURE_ constant"))),
    }
}

/// Ends a capture, and writes its instantiated graph. The capture handle is destroyed even if this fails.
///
/// Destroy the graph with `cachette_graph_destroy`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_capture_end(capture: *mut CaptureHandle, out_graph: *mut *mut GraphHandle) -> Status {
    call!([], {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_graph, "out_graph") };
        // SAFETY: 1. is the caller's promise.
        let capture = unsafe { from_handle(capture) }.ok_or_else(|| Failure::null("capture"))?;
        // Without an out-pointer the graph is discarded, so that the handle is destroyed on every path.
        let out = out?;
        *out = into_handle(GraphHandle { inner: capture.inner.end()? });
    })
}

/// Ends a capture and discards its graph; NULL is ignored.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_capture_abandon(capture: *mut CaptureHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(capture) }
}

/// Launches a graph in a stream. No other graph of the same pool may run at the same time.
#[doc = promises!("1, 4 and 5")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_graph_launch(graph: *mut GraphHandle, stream: *mut c_void) -> Status {
    call!([handle(graph)], {
        let allocator = graph.inner.pool().allocator();
        // SAFETY: 4. is the caller's promise.
        let stream: Stream = unsafe { allocator.adopt_stream(stream_of(stream)) }?;
        // SAFETY: 5. is the caller's promise, and the stream is of this allocator.
        unsafe { graph.inner.launch(&stream) }?;
    })
}

/// Destroys a graph; NULL is ignored. Running launches complete.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_graph_destroy(graph: *mut GraphHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(graph) }
}

//! The default streams of threads, and the functions for which null is one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::ptr;

use cachette_hal::{Device, StreamRef};

use crate::prelude::*;
use crate::{capture, device, stream_ordered, transfer};

/// The handle that names the default stream of the calling thread.
pub(crate) const PER_THREAD: usize = 2;

thread_local! {
    /// One for each device that the thread has used.
    static STREAMS: RefCell<BTreeMap<usize, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// The default stream of the calling thread on the current device.
pub(crate) fn own_stream() -> Answer<StreamRef> {
    let unit = current()?;
    STREAMS.with_borrow_mut(|streams| {
        if let Some(known) = streams.get(&unit.index) {
            return Ok(StreamRef::from_raw(*known));
        }
        let stream = unit.device.create_stream().map_err(told)?.raw();
        streams.insert(unit.index, stream);
        Ok(StreamRef::from_raw(stream))
    })
}

fn own_if_null(stream: *mut c_void) -> *mut c_void {
    if stream.is_null() { ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

/// Declares functions that call the plain ones with the thread's stream instead of null.
macro_rules! per_thread {
    ($($name:ident => $module:ident::$plain:ident($($before:ident: $kind:ty),*; $($after:ident: $last:ty),*);)*) => {
        abi! {$(
            #[doc = "The same, where null is the thread's default stream."]
            fn $name($($before: $kind,)* stream: *mut c_void, $($after: $last),*) {
                // SAFETY: the arguments are the caller's.
                let status = unsafe { $module::$plain($($before,)* own_if_null(stream), $($after),*) };
                refuse_if(status != 0, status)
            }
        )*}
    };
}

per_thread! {
    cuMemAllocAsync_ptsz => stream_ordered::cuMemAllocAsync(at: *mut u64, bytes: usize;);
    cuMemAllocFromPoolAsync_ptsz =>
        stream_ordered::cuMemAllocFromPoolAsync(at: *mut u64, bytes: usize, from: *mut c_void;);
    cuMemFreeAsync_ptsz => stream_ordered::cuMemFreeAsync(at: u64;);
    cuMemsetD8Async_ptsz => transfer::cuMemsetD8Async(at: u64, byte: u8, bytes: usize;);
    cuMemcpyDtoHAsync_v2_ptsz => transfer::cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize;);
    cuStreamSynchronize_ptsz => device::cuStreamSynchronize(;);
    cuStreamBeginCapture_v2_ptsz => capture::cuStreamBeginCapture_v2(; number: c_uint);
    cuStreamEndCapture_ptsz => capture::cuStreamEndCapture(; graph: *mut *mut c_void);
}

//! A stream that a test stops and lets go on.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use cudarc::driver::CudaStream;
use cudarc::driver::result::stream::launch_host_function;

/// While it lives, the work that is queued later in the stream does not run.
pub(crate) struct Hold {
    _release: Sender<()>,
}

impl Hold {
    pub(crate) fn new(stream: &Arc<CudaStream>) -> Self {
        let (release, held) = channel::<()>();
        stream.context().bind_to_thread().unwrap();
        let held = Box::into_raw(Box::new(held));
        // SAFETY: the function takes the box over, and runs once.
        unsafe { launch_host_function(stream.cu_stream(), wait, held.cast()) }.unwrap();
        Self { _release: release }
    }
}

unsafe extern "C" fn wait(held: *mut c_void) {
    // SAFETY: it is the box of `Hold::new`, and no other code has it.
    let held: Box<Receiver<()>> = unsafe { Box::from_raw(held.cast()) };
    // The sender ends without a message.
    let _ = held.recv();
}

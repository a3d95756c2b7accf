//! Host functions in stream order.

use std::ffi::c_void;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Result, StreamRef};

/// A host function that a stream runs once.
pub type HostFunction = Box<dyn FnOnce() + Send + 'static>;

/// Passes a function to a driver that accepts a C function and one pointer.
///
/// `queue` succeeds if the driver will call the C function, once and with this pointer. It fails if the driver will not;
/// the function is then dropped.
pub fn queue_host_function(
    function: HostFunction,
    queue: impl FnOnce(unsafe extern "C" fn(*mut c_void), *mut c_void) -> Result<()>,
) -> Result<()> {
    // A fat pointer does not fit into the driver's one word, so the function is boxed again.
    let data = Box::into_raw(Box::new(function));
    queue(run, data.cast()).inspect_err(|_| {
        // SAFETY: the driver refused the function, so it will not run.
        drop(unsafe { Box::from_raw(data) });
    })
}

/// Runs a function once.
///
/// # Safety
///
/// `data` is a `Box<HostFunction>` by its raw pointer, given to one call.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let function = unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    // A panic was reported when it occurred, and must not unwind into the driver.
    let _ = catch_unwind(AssertUnwindSafe(function));
}

/// Host functions in stream order: the stream continues when the function returns.
///
/// Tests use them to hold a stream at a known point. Functions of different streams may run one after the other, on
/// threads of the driver.
pub trait HostCalls: Debug + Send + Sync {
    /// Queues `function`; it must not call the driver, and must not panic.
    ///
    /// [`ErrorKind::CaptureForbids`](crate::ErrorKind::CaptureForbids) in a captured stream: a graph can run many
    /// times, and the function only once.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuLaunchHostFunc")]
    #[doc(alias = "hipLaunchHostFunc")]
    unsafe fn call_host(&self, stream: StreamRef, function: HostFunction) -> Result<()>;
}

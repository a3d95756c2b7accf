//! Host functions in stream order.

use std::fmt::Debug;

use crate::{Result, StreamRef};

/// A host function that a stream runs once.
pub type HostFunction = Box<dyn FnOnce() + Send + 'static>;

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

const _: Option<&dyn HostCalls> = None;

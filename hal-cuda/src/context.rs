//! The device's primary context, made current around every call.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cachette_hal::{ErrorKind, Result};
use cudarc::driver::sys::{CUcontext, CUdevice};

use crate::library::Driver;
use crate::status::{DEVICE_UNAVAILABLE, check, retold};
use crate::symbols::CoreCalls;
use crate::types::{handle, pointer};

/// A device's primary context: the one that every user of the device in this process shares.
///
/// The driver counts who retains it, and destroys it with the last one.
pub(crate) struct Context {
    driver: Arc<Driver>,
    device: CUdevice,
    handle: usize,
}

impl Context {
    /// Retains the primary context of `device`.
    pub(crate) fn retain(driver: Arc<Driver>, device: CUdevice) -> Result<Arc<Self>> {
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let status = unsafe { (driver.core.retain_context)(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", status).map_err(|error| match status {
            // Nothing was lost yet: somebody else holds the device, or an administrator closed it.
            DEVICE_UNAVAILABLE => retold(error, ErrorKind::Refused),
            _ => error,
        })?;
        Ok(Arc::new(Self { driver, device, handle: handle(context) }))
    }

    /// The driver's functions.
    pub(crate) fn core(&self) -> &CoreCalls {
        &self.driver.core
    }

    /// The driver itself.
    pub(crate) const fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The driver's number for the device.
    pub(crate) const fn device(&self) -> CUdevice {
        self.device
    }

    /// The driver's handle.
    pub(crate) fn raw(&self) -> CUcontext {
        pointer(self.handle)
    }

    /// Makes the context current for this thread until the guard is dropped.
    ///
    /// Asking first spares most callers two calls: whoever works with a device has its context current.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let mut current = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let status = unsafe { (self.core().current_context)(&raw mut current) };
        check("cuCtxGetCurrent", status)?;
        let pushed = current != self.raw();
        if pushed {
            // SAFETY: the context is retained as long as `self` lives.
            let status = unsafe { (self.core().push_context)(self.raw()) };
            check("cuCtxPushCurrent_v2", status)?;
        }
        Ok(Entered { context: self, pushed, thread: PhantomData })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("library", &self.driver.library)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A driver that is shut down says so, and has let go of the context itself.
        // SAFETY: it was retained once, by `retain`.
        let _ = unsafe { (self.core().release_context)(self.device) };
    }
}

/// Keeps a context current on this thread; dropped, it puts back what was current before.
#[must_use = "dropped at once, it changes nothing"]
pub(crate) struct Entered<'c> {
    context: &'c Context,
    pushed: bool,
    /// What is current is a matter of one thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // It can only fail where the driver is shut down, and then nothing is current.
            // SAFETY: the driver writes one handle; it pops what `enter` pushed.
            let _ = unsafe { (self.context.core().pop_context)(&raw mut popped) };
        }
    }
}

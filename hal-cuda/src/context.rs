//! The device's primary context, made current around every call.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, MutexGuard};

use cachette_hal::{CaptureLock, ErrorKind, Reason, Result, StreamRef};
use cudarc::driver::sys::{CUcontext, CUdevice};

use crate::capture::is_idle;
use crate::library::Driver;
use crate::status::{DEVICE_UNAVAILABLE, check};
use crate::symbols::{CoreCalls, Symbols};
use crate::types::{Status, handle, pointer};

/// The lock of the calls that use a capture, of all devices.
///
/// The driver frees a capture at its end without regard for other threads. With driver 580 the process crashed when
/// another thread ended the same capture, used a stream or an event of it, or synchronized the context. Queries of a
/// stream's capture, and calls for other streams and events, did no harm.
pub(crate) static CAPTURES: CaptureLock = CaptureLock::new();

/// A device's primary context: the one that every user of the device in this process shares.
///
/// The driver counts its users and destroys it with the last one.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    /// The driver's number for the device.
    pub(crate) device: CUdevice,
    handle: usize,
}

impl Context {
    /// Retains the primary context of `device`.
    pub(crate) fn retain(driver: Arc<Driver>, device: CUdevice) -> Result<Arc<Self>> {
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let status = unsafe { (driver.symbols.core.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", status).map_err(|error| match status {
            // The device is not lost: another process holds it, or an administrator closed it.
            DEVICE_UNAVAILABLE => error.with_kind(ErrorKind::Refused),
            _ => error,
        })?;
        Ok(Arc::new(Self { driver, device, handle: handle(context) }))
    }

    pub(crate) fn core(&self) -> &CoreCalls {
        &self.driver.symbols.core
    }

    pub(crate) fn symbols(&self) -> &Symbols {
        &self.driver.symbols
    }

    pub(crate) fn raw(&self) -> CUcontext {
        pointer(self.handle)
    }

    /// Makes the context current for this thread until the guard is dropped.
    ///
    /// Most callers have it current already, so a query first saves two calls.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let mut current = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let status = unsafe { (self.core().cuCtxGetCurrent)(&raw mut current) };
        check("cuCtxGetCurrent", status)?;
        let pushed = current != self.raw();
        if pushed {
            // SAFETY: the context is retained as long as `self` lives.
            let status = unsafe { (self.core().cuCtxPushCurrent_v2)(self.raw()) };
            check("cuCtxPushCurrent_v2", status)?;
        }
        Ok(Entered { context: self, pushed, thread: PhantomData })
    }

    /// Makes a call with the context current.
    pub(crate) fn call(&self, call: &'static str, make: impl FnOnce() -> Status) -> Result<()> {
        let _entered = self.enter()?;
        check(call, make())
    }

    /// [`enter`](Self::enter) for a call that names a stream: no other call uses the stream's capture meanwhile.
    ///
    /// # Safety
    ///
    /// Promise 1.
    pub(crate) unsafe fn enter_for(&self, stream: StreamRef) -> Result<Locked<'_>> {
        let entered = self.enter()?;
        // SAFETY: 1. is the caller's promise.
        let lock = CAPTURES.hold(|| unsafe { is_idle(self, stream) });
        Ok(Locked { _lock: lock, _entered: entered })
    }

    /// [`enter`](Self::enter) for a call that may use any capture: no other call uses one meanwhile.
    pub(crate) fn enter_locked(&self) -> Result<Locked<'_>> {
        let entered = self.enter()?;
        Ok(Locked { _lock: CAPTURES.hold(|| false), _entered: entered })
    }
}

/// One group of calls, with the device that makes them.
#[derive(Debug)]
pub(crate) struct Group<C> {
    pub(crate) context: Arc<Context>,
    pub(crate) calls: C,
}

impl<C> Group<C> {
    /// The group, if the library has its functions.
    pub(crate) fn new(context: &Arc<Context>, calls: Result<C, Reason>) -> Result<Self, Reason> {
        Ok(Self { context: Arc::clone(context), calls: calls? })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("library", &self.driver.info.library)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A driver that has shut down fails here, and has released the context itself.
        // SAFETY: it was retained once, by `retain`.
        let _ = unsafe { (self.core().cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// Keeps a context current on this thread; its drop restores the previous one.
#[must_use = "the drop restores the previous context"]
pub(crate) struct Entered<'c> {
    context: &'c Context,
    pushed: bool,
    /// The current context is a property of one thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // It fails only if the driver has shut down, and then no context is current.
            // SAFETY: the driver writes one handle; it pops what `enter` pushed.
            let _ = unsafe { (self.context.core().cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}

/// Keeps a context current, and other calls from the captures that this call uses.
#[must_use = "the drop unlocks the captures"]
pub(crate) struct Locked<'c> {
    /// Dropped first.
    _lock: Option<MutexGuard<'static, ()>>,
    _entered: Entered<'c>,
}

//! A device of the driver, made current around every call.

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard};

use cachette_hal::{CaptureLock, Error, ErrorKind, Reason, Result, StreamRef};

use crate::capture::{check_live, is_idle};
use crate::library::Driver;
use crate::symbols::{CoreCalls, Symbols};
use crate::types::{Status, StreamHandle};

/// The lock of the calls that use a capture, of all devices: the driver protects a capture's state by none.
pub(crate) static CAPTURES: CaptureLock = CaptureLock::new();

/// HIP's second handle for the default stream; the driver crashes on it.
const LEGACY_STREAM: usize = 1;
/// The default stream of the calling thread. Created streams have higher handles.
pub(crate) const PER_THREAD_STREAM: StreamHandle = 2;

/// The handle to pass for a stream.
pub(crate) const fn handle(stream: StreamRef) -> StreamHandle {
    match stream.raw() {
        LEGACY_STREAM => StreamRef::DEFAULT.raw(),
        raw => raw,
    }
}

/// A device of the driver.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    /// The driver's number for the device.
    pub(crate) device: c_int,
}

impl Context {
    pub(crate) fn new(driver: Arc<Driver>, device: c_int) -> Arc<Self> {
        Arc::new(Self { driver, device })
    }

    pub(crate) fn core(&self) -> &CoreCalls {
        &self.driver.symbols.core
    }

    pub(crate) fn symbols(&self) -> &Symbols {
        &self.driver.symbols
    }

    /// Makes the device current for this thread until the guard is dropped.
    ///
    /// Calls that name a device need this too: since 7.1 `hipMemCreate` uses the current device instead of the one in
    /// its argument.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        self.driver.begin_call();
        let mut previous = 0;
        // SAFETY: the driver writes one number.
        let status = unsafe { (self.core().hipGetDevice)(&raw mut previous) };
        self.check("hipGetDevice", status)?;
        if previous == self.device {
            return Ok(Entered { context: self, previous: None, thread: PhantomData });
        }
        // SAFETY: the only argument is a number.
        let status = unsafe { (self.core().hipSetDevice)(self.device) };
        self.check("hipSetDevice", status)?;
        Ok(Entered { context: self, previous: Some(previous), thread: PhantomData })
    }

    /// Makes a call with the device current.
    pub(crate) fn call(&self, call: &'static str, make: impl FnOnce() -> Status) -> Result<()> {
        let _entered = self.enter()?;
        self.check(call, make())
    }

    /// The start and the size of the allocation or mapping that contains an address.
    pub(crate) fn address_range(&self, at: u64) -> Result<(u64, u64)> {
        let call = "hipMemGetAddressRange";
        let calls = self.symbols().addresses.map_err(|_| Error::new(ErrorKind::Unsupported, call))?;
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: the driver writes an address and a size.
        self.call(call, || unsafe { (calls.hipMemGetAddressRange)(&raw mut base, &raw mut bytes, at) })?;
        Ok((base, bytes))
    }

    /// [`enter`](Self::enter) for a call that names a stream: no other call uses the stream's capture meanwhile.
    ///
    /// Fails if the stream was destroyed: the driver would crash or report success.
    ///
    /// # Safety
    ///
    /// Promise 1.
    pub(crate) unsafe fn enter_for(&self, stream: StreamRef) -> Result<Locked<'_>> {
        let entered = self.enter()?;
        // SAFETY: 1. is the caller's promise.
        let lock = CAPTURES.hold(|| unsafe { is_idle(self, stream) });
        // The query uses the stream's capture too, so it comes under the lock.
        // SAFETY: 1. is the caller's promise.
        unsafe { check_live(self, stream) }?;
        Ok(Locked { _lock: lock, _entered: entered })
    }

    /// [`enter`](Self::enter) for a call that may use any capture: no other call uses one meanwhile.
    pub(crate) fn enter_locked(&self) -> Result<Locked<'_>> {
        let entered = self.enter()?;
        Ok(Locked { _lock: CAPTURES.hold(|| false), _entered: entered })
    }

    /// Turns the status of `call` into a result, and clears the thread's last error.
    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        self.driver.check(call, status)
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

/// Keeps a device current on this thread; its drop restores the previous one.
#[must_use = "the drop restores the previous device"]
pub(crate) struct Entered<'c> {
    context: &'c Context,
    /// `None` if it is the same device.
    previous: Option<c_int>,
    /// The current device is a property of one thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            // It was current before; if it no longer exists, there is nothing to restore.
            // SAFETY: it takes numbers only.
            let _ = unsafe { (self.context.core().hipSetDevice)(previous) };
        }
    }
}

/// Keeps a device current, and other calls from the captures that this call uses.
#[must_use = "the drop unlocks the captures"]
pub(crate) struct Locked<'c> {
    /// Dropped first.
    _lock: Option<MutexGuard<'static, ()>>,
    _entered: Entered<'c>,
}

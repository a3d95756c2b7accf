//! Contexts, and which of them is current on a thread.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::Ordering;

use cachette_hal::{Device, Stream};

use crate::abi::{abi, put_if_wanted};
use crate::driver::{Unit, driver};
use crate::status::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE, refuse_if, told};

thread_local! {
    /// Handles of contexts; the last one is current. Exit handlers still call the driver, so it is never dropped.
    static STACK: RefCell<ManuallyDrop<Vec<usize>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// What the handle of the first device's context is; others follow.
const FIRST_HANDLE: usize = 0xc0de_0000;

impl Unit {
    pub(crate) fn context(&self) -> usize {
        FIRST_HANDLE + self.index
    }
}

/// The device whose context has this handle.
pub(crate) fn unit_of(context: usize) -> Answer<&'static Unit> {
    let driver = driver()?;
    if let Some(index) = driver.ledger.contexts.lock().get(&context) {
        return driver.units.get(*index).ok_or(INVALID_CONTEXT);
    }
    let mut found = driver.units.iter().filter(|unit| unit.context() == context);
    let unit = found.next().ok_or(INVALID_CONTEXT)?;
    // Relaxed: a caller that uses a context has retained it before, by whatever orders its calls.
    refuse_if(unit.retained.load(Ordering::Relaxed) == 0, CONTEXT_IS_DESTROYED)?;
    Ok(unit)
}

pub(crate) fn current() -> Answer<&'static Unit> {
    unit_of(current_handle().ok_or(INVALID_CONTEXT)?)
}

pub(crate) fn current_handle() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied())
}

fn known(context: usize) -> Answer<usize> {
    unit_of(context).map(|_| context)
}

abi! {
    fn cuCtxCreate_v2(context: *mut *mut c_void, _flags: c_uint, device: c_int) => context {
        let driver = driver()?;
        let unit = driver.unit(device)?;
        refuse_if(context.is_null(), INVALID_VALUE)?;
        let handle = driver.ledger.next_handle();
        driver.ledger.contexts.lock().insert(handle, unit.index);
        STACK.with_borrow_mut(|stack| stack.push(handle));
        Ok(ptr::without_provenance_mut(handle))
    }

    /// Destroys a context that the program made, with its streams. Primary contexts are released.
    fn cuCtxDestroy_v2(context: *mut c_void) {
        let (driver, handle) = (driver()?, context.addr());
        let index = driver.ledger.contexts.lock().remove(&handle).ok_or(INVALID_CONTEXT)?;
        let unit = driver.units.get(index).ok_or(INVALID_CONTEXT)?;
        let mut own = Vec::new();
        driver.ledger.context_of.lock().retain(|stream, context| {
            if *context == handle {
                own.push(*stream);
            }
            *context != handle
        });
        for stream in own {
            // SAFETY: 1. the ledger had it.
            unsafe { unit.device.destroy_stream(Stream::from_raw(stream)) }.map_err(told)?;
        }
        STACK.with_borrow_mut(|stack| stack.pop_if(|top| *top == handle));
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) => context {
        let unit = driver()?.unit(device)?;
        // Relaxed: see `unit_of`.
        unit.retained.fetch_add(1, Ordering::Relaxed);
        Ok(ptr::without_provenance_mut(unit.context()))
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let unit = driver()?.unit(device)?;
        let less = |count: u32| count.checked_sub(1);
        // Relaxed: see `unit_of`.
        unit.retained.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map(drop).map_err(|_| INVALID_CONTEXT)
    }

    /// The context that is current on this thread; null if none is.
    fn cuCtxGetCurrent(context: *mut *mut c_void) => context {
        driver()?;
        Ok(ptr::without_provenance_mut(current_handle().unwrap_or(0)))
    }

    /// Makes a context current on this thread in place of the one that was; null leaves the one before that.
    fn cuCtxSetCurrent(context: *mut c_void) {
        driver()?;
        let replacement = if context.is_null() { None } else { Some(known(context.addr())?) };
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            stack.extend(replacement);
        });
        Ok(())
    }

    fn cuCtxGetDevice(device: *mut c_int) => device {
        c_int::try_from(current()?.index).map_err(|_| INVALID_CONTEXT)
    }

    fn cuCtxPushCurrent_v2(context: *mut c_void) {
        let context = known(context.addr())?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: *mut *mut c_void) {
        driver()?;
        let top = STACK.with_borrow_mut(|stack| stack.pop()).ok_or(INVALID_CONTEXT)?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(context, ptr::without_provenance_mut(top)) };
        Ok(())
    }
}
